from pathlib import Path

import pytest

from openrl import config
from openrl.domain.errors import SettingInvalid


def test_defaults_need_nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENRL_DATA_DIR", "OPENRL_REDIS_URL", "OPENRL_BASE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    settings = config.load()
    assert settings.redis_url is None
    assert settings.catalog_at == f"sqlite:///{Path('~/.openrl').expanduser()}/catalog.db"


def test_nested_variables_reach_their_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRL_TRAIN__PACK_TOKENS", "123")
    assert config.load().train.pack_tokens == 123


def test_memory_is_looked_up_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.load().train.memory_gb == 0
    monkeypatch.setenv("OPENRL_TRAIN__MEMORY_GB", "1.5")
    assert config.load().train.memory_gb == 1.5


def test_aliases_are_a_comma_separated_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRL_MODEL_ALIASES", "org/one, two,")
    assert config.load().model_aliases == ("org/one", "two")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENRL_TRIAN__PACK_TOKENS", "1"),
        ("OPENRL_BASEMODEL", "x"),
        ("OPENRL_TRAIN__PACK_TOKEN", "1"),
        ("OPENRL_TRAIN__PACK_TOKENS", "many"),
        ("OPENRL_GATEWAY__PORT", "70000"),
        ("OPENRL_WORKER__DEVICE", "gpu"),
        ("OPENRL_SAMPLE__ENGINE", "best"),
        ("OPENRL_SAMPLE__VLLM__EXTRA", "[1]"),
        ("OPENRL_SAMPLE__VLLM__EXTRA", "{"),
        ("OPENRL_SAMPLE__VLLM__MEMORY_SHARE", "90"),
        ("OPENRL_RETENTION__SILENT_SECONDS", "inf"),
        ("OPENRL_RETENTION__FINISHED_SECONDS", "1e11"),
    ],
)
def test_a_mistyped_or_impossible_setting_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingInvalid) as caught:
        config.load()
    assert str(caught.value).startswith(variable)
