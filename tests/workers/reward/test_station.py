from pathlib import Path

import pytest

from openrl.config import Reward
from openrl.domain.errors import SettingInvalid
from workers.reward.catalogue import Listing
from workers.reward.sandbox.levels import Level
from workers.reward.station import _require_hidden, _tell, signing_key, withheld_at


def test_the_level_and_broken_functions_are_told_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    _tell(Level.KERNEL, Listing({}, {"mine": "ModuleNotFoundError: No module named 'mine'"}))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "sandbox level: kernel"),
        ("ERROR", "reward function mine could not be loaded: ModuleNotFoundError: No module named 'mine'"),
    ]


def test_a_data_directory_that_code_could_read_is_refused(tmp_path: Path) -> None:
    _require_hidden(tmp_path / "data", [tmp_path / "lib"])
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    for home in (tmp_path / "lib", tmp_path / "lib" / "data", tmp_path / "link" / "data"):
        with pytest.raises(SettingInvalid, match=r"^OPENRL_DATA_DIR: lies in .*lib, which model output may read"):
            _require_hidden(home, [tmp_path / "lib"])


@pytest.mark.parametrize(
    ("level", "source", "why"),
    [
        (Level.STRONG, True, None),
        (Level.STRONG, False, "OPENRL_REWARD__SOURCE is not true"),
        (Level.KERNEL, True, "the sandbox is at level kernel, and source is run at level strong only"),
        (Level.LIMITS, True, "the sandbox is at level limits, and source is run at level strong only"),
    ],
)
def test_source_is_run_where_it_is_on_and_walls_are_strong(level: Level, source: bool, why: str | None) -> None:
    assert withheld_at(level, Reward(source=source)).get("source") == why


def test_the_key_of_webhooks_lies_in_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_bytes(b"a" * 16 + b"\n")
    monkeypatch.setenv("WEBHOOK_KEY", "b" * 20)
    assert signing_key(f"file:{tmp_path / 'key'}") == b"a" * 16
    assert signing_key("env:WEBHOOK_KEY") == b"b" * 20


@pytest.mark.parametrize("reference", ["", "env:NEVER_SET", "file:/no/such/file", "file:/dev/null"])
def test_without_a_key_no_webhook_is_offered(reference: str) -> None:
    with pytest.raises(SettingInvalid, match=r"OPENRL_REWARD__WEBHOOK_KEY: "):
        signing_key(reference)
