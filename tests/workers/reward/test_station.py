from pathlib import Path

import pytest

from openrl.domain.errors import SettingInvalid
from workers.reward.station import _require_hidden


def test_a_data_directory_that_code_could_read_is_refused(tmp_path: Path) -> None:
    _require_hidden(tmp_path / "data", [tmp_path / "lib"])
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    for home in (tmp_path / "lib", tmp_path / "lib" / "data", tmp_path / "link" / "data"):
        with pytest.raises(SettingInvalid, match=r"^OPENRL_DATA_DIR: lies in .*lib, which model output may read"):
            _require_hidden(home, [tmp_path / "lib"])
