import pytest

from openrl.cli import given
from openrl.domain.errors import SettingInvalid


def test_options_that_were_not_given_leave_the_environments_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRL_GATEWAY__HOST", "10.0.0.1")
    settings = given.settings(base_model=None, gateway={"host": None, "port": 9})
    assert (settings.gateway.host, settings.gateway.port) == ("10.0.0.1", 9)
    assert settings.base_model == "smollm2-135m"


def test_a_component_alone_needs_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENRL_REDIS_URL", raising=False)
    with pytest.raises(SettingInvalid, match="OPENRL_REDIS_URL"):
        given.component_settings()
    monkeypatch.setenv("OPENRL_REDIS_URL", "redis://127.0.0.1:1")
    assert given.component_settings().redis_url == "redis://127.0.0.1:1"


def test_a_count_that_does_not_go_with_the_others_is_refused() -> None:
    assert (given.counted("--train-workers", 3, fits=True), given.counted("--train-workers", None, fits=False)) == (
        3,
        1,
    )
    with pytest.raises(SettingInvalid, match="--train-workers"):
        given.counted("--train-workers", 2, fits=False)
