from pathlib import Path

import pytest

from openrl.domain.errors import SettingInvalid
from workers.reward.catalogue import Listing
from workers.reward.sandbox.levels import Level
from workers.reward.station import _require_hidden, _tell


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
