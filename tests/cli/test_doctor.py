import json
from pathlib import Path

import pytest

from openrl.cli import doctor
from openrl.cli.doctor import Finding, Level
from openrl.cli.ports import listening
from openrl.config import Gateway, Reward, Settings, Worker
from openrl.domain.errors import SettingInvalid


def _settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "not" / "yet", base_model="tiny", gateway=Gateway(port=0), flower_port=0)


def test_an_installation_that_works_has_no_failure(tmp_path: Path) -> None:
    findings = doctor.examine(lambda: _settings(tmp_path))
    assert not doctor.any_failed(findings)
    levels = {finding.what: finding.level for finding in findings}
    assert levels["base model"] is Level.WARN  # it is not pulled yet
    assert levels["device"] is Level.OK


def test_settings_that_cannot_be_read_are_a_failure() -> None:
    def read() -> Settings:
        raise SettingInvalid("OPENRL_TRIAN", "no such setting")

    assert doctor.examine(read)[-1].fact == "OPENRL_TRIAN: no such setting"
    assert doctor.any_failed(doctor.examine(read))


def test_an_old_python_is_a_failure() -> None:
    assert doctor.python((3, 10, 4)).level is Level.FAIL


def test_a_device_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    finding = doctor.device(_settings(tmp_path).model_copy(update={"worker": Worker(device="mps")}))
    assert finding.level is Level.FAIL or "mps" in finding.fact


@pytest.mark.parametrize(
    ("asked", "lacking", "level", "words"),
    [
        ("auto", {"strong": "", "kernel": "", "limits": ""}, Level.OK, "at level strong"),
        ("auto", {"strong": "no", "kernel": "", "limits": ""}, Level.OK, "at level kernel (strong: no)"),
        ("auto", {"strong": "no", "kernel": "none", "limits": ""}, Level.WARN, "at level limits"),
        ("kernel", {"strong": "", "kernel": "", "limits": ""}, Level.OK, "at level kernel"),
        ("strong", {"strong": "no", "kernel": "", "limits": ""}, Level.FAIL, "strong cannot be had (strong: no)"),
    ],
)
def test_the_sandboxs_level_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, lacking: dict[str, str], level: Level, words: str
) -> None:
    monkeypatch.setattr(doctor, "_lacking_levels", lambda: lacking)
    finding = doctor.sandbox(_settings(tmp_path).model_copy(update={"worker": Worker(sandbox=asked)}))
    assert finding.level is level
    assert words in finding.fact


KEY = "env:KEY"
URLS = ("https://a.example.com/v1", "http://127.0.0.1:9000/")


@pytest.mark.parametrize(
    ("wish", "strong", "level", "words"),
    [
        (Reward(), "", Level.OK, "webhook off; source off"),
        (Reward(source=True), "", Level.OK, "webhook off; source on"),
        (Reward(source=True), "no", Level.WARN, "source on, but refused: no sandbox of level strong (no)"),
        (Reward(webhook_urls=URLS, webhook_key=KEY), "", Level.OK, f"webhook to {', '.join(URLS)}; source off"),
        (Reward(webhook_urls=URLS), "", Level.FAIL, "without a key"),
    ],
)
def test_what_clients_may_score_with_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wish: Reward, strong: str, level: Level, words: str
) -> None:
    monkeypatch.setattr(doctor, "_lacking_levels", lambda: {"strong": strong, "kernel": "", "limits": ""})
    finding = doctor.rewards(_settings(tmp_path).model_copy(update={"reward": wish}))
    assert (finding.level, words in finding.fact) == (level, True)


def test_the_sandboxs_levels_are_tried_for_real() -> None:
    assert list(doctor._lacking_levels()) == ["strong", "kernel", "limits"]


def test_a_taken_port_and_a_broker_that_is_away_are_failures(tmp_path: Path) -> None:
    with listening("x", "127.0.0.1", 0) as taken:
        settings = _settings(tmp_path).model_copy(
            update={"flower_port": taken.getsockname()[1], "redis_url": "redis://127.0.0.1:1/0"}
        )
        assert [finding.level for finding in doctor.ports(settings)] == [Level.OK, Level.FAIL]
        assert doctor.broker(settings).level is Level.FAIL


def test_findings_are_shown_as_text_and_as_json() -> None:
    findings = [Finding(what="disk", level=Level.WARN, fact="1 GB free", fix="make room")]
    assert doctor.as_text(findings) == "warn  disk  1 GB free  → make room"
    assert json.loads(doctor.as_json(findings))[0]["level"] == "warn"


@pytest.mark.parametrize("name", ["no/such/model/anywhere", "nope"])
def test_an_unknown_base_model_is_a_failure(tmp_path: Path, name: str) -> None:
    settings = _settings(tmp_path).model_copy(update={"base_model": name})
    assert doctor.model(settings).level is Level.FAIL
