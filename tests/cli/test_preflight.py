from pathlib import Path

import pytest

from openrl.cli import machine, preflight
from openrl.cli.errors import BrokerUnreachable, ModelWontFit, PortTaken
from openrl.cli.plan import Choices
from openrl.cli.ports import listening
from openrl.config import Gateway, Settings, Worker
from openrl.domain.errors import BaseModelMissing


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Nothing to complain of: any port, a model folder without weights."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return Settings(data_dir=tmp_path, base_model=str(folder), gateway=Gateway(port=0), flower_port=0)


def test_good_settings_pass(settings: Settings) -> None:
    preflight.check(settings, Choices())


def test_ports_that_are_left_open_are_picked(settings: Settings) -> None:
    settled = preflight.with_ports(settings)
    assert settled.gateway.port
    assert settled.flower_port


def test_several_workers_share_the_cores_unless_told_otherwise(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "usable_cores", lambda: 8)
    told = settings.model_copy(update={"worker": Worker(threads=3)})
    assert preflight.with_threads(settings, Choices()).worker.threads == 0
    assert preflight.with_threads(settings, Choices(separate=True)).worker.threads == 4
    assert preflight.with_threads(settings, Choices(separate=True, sample_workers=3)).worker.threads == 2
    assert preflight.with_threads(settings, Choices(device_workers=9)).worker.threads == 1
    assert preflight.with_threads(told, Choices(separate=True)).worker.threads == 3
    assert preflight.with_threads(settings, Choices(base_models=("a", "b"), device_workers=2)).worker.threads == 2


def test_a_taken_port_names_the_option_that_changes_it(settings: Settings) -> None:
    with listening("x", "127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        flower = settings.model_copy(update={"flower_port": port})
        gateway = settings.model_copy(update={"gateway": Gateway(port=port)})
        with pytest.raises(PortTaken, match="--flower-port"):
            preflight.check(flower, Choices())
        preflight.check(flower, Choices(flower=False))
        with pytest.raises(PortTaken, match="--port"):
            preflight.check(gateway, Choices())


def test_an_unreachable_broker_is_told_without_its_password(settings: Settings) -> None:
    with pytest.raises(BrokerUnreachable, match=r"redis://…@127\.0\.0\.1:1/0") as caught:
        preflight.check(settings.model_copy(update={"redis_url": "redis://:hush@127.0.0.1:1/0"}), Choices())
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://somewhere", "nonsense"])
def test_a_broker_url_that_is_none_is_told(settings: Settings, url: str) -> None:
    with pytest.raises(BrokerUnreachable, match="OPENRL_REDIS_URL"):
        preflight.check(settings.model_copy(update={"redis_url": url}), Choices())


def test_an_unknown_model_is_told_with_the_names_there_are(settings: Settings) -> None:
    with pytest.raises(BaseModelMissing, match="smollm2-135m"):
        preflight.check(settings.model_copy(update={"base_model": "nope"}), Choices())


def test_a_listed_model_that_is_not_here_is_pulled_first(settings: Settings) -> None:
    absent = settings.model_copy(update={"base_model": "tiny"})
    preflight.check(absent, Choices())
    assert [model.name for model in preflight.to_pull(absent, Choices())] == ["tiny"]
    both = Choices(base_models=(settings.base_model, "tiny", "smollm2-135m"))
    assert [model.name for model in preflight.to_pull(settings, both)] == ["tiny", "smollm2-135m"]


def test_the_memory_for_all_base_models_together_is_asked_for(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    monkeypatch.setattr(machine, "free_gb", lambda: 2.5 * machine.PROCESS_GB)
    cpu = settings.model_copy(update={"worker": Worker(device="cpu")})
    both = Choices(base_models=(settings.base_model, str(other)))
    preflight.check_models(cpu, both)
    monkeypatch.setattr(machine, "free_gb", lambda: 1.5 * machine.PROCESS_GB)
    with pytest.raises(ModelWontFit):
        preflight.check_models(cpu, both)


def test_a_model_with_terms_is_not_pulled_unasked(settings: Settings) -> None:
    with pytest.raises(BaseModelMissing, match="openrl models pull gemma3-270m"):
        preflight.check(settings.model_copy(update={"base_model": "gemma3-270m"}), Choices())
