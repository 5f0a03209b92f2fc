import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from openrl.cli import home
from openrl.cli.errors import AlreadyServing, NotServing
from openrl.domain.errors import SettingInvalid


def test_a_data_directory_is_held_by_one_only(tmp_path: Path) -> None:
    with (
        home.locked(tmp_path),
        pytest.raises(AlreadyServing, match=rf"process {os.getpid()}\); stop it"),
        home.locked(tmp_path),
    ):
        pass


def test_it_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with home.locked(tmp_path / "new" / "folder"):
            pass


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingInvalid, match="--data-dir"), home.locked(tmp_path / "file"):
        pass


def test_the_local_key_is_the_same_at_every_start(tmp_path: Path) -> None:
    first = home.local_secret(tmp_path, None)
    assert first.startswith("tml-")
    assert home.local_secret(tmp_path, None) == first


def test_a_given_key_is_kept_for_later_starts(tmp_path: Path) -> None:
    home.local_secret(tmp_path, None)
    assert home.local_secret(tmp_path, "tml-mine") == "tml-mine"
    assert home.local_secret(tmp_path, None) == "tml-mine"


def test_a_given_key_without_the_prefix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="tml-"):
        home.local_secret(tmp_path, "mine")


@pytest.mark.parametrize("name", ["local_key", "serve.json"])
def test_secrets_are_for_their_owner_only(tmp_path: Path, name: str) -> None:
    home.local_secret(tmp_path, None)
    home.write_status(tmp_path, url="http://x")
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_status_is_read_while_its_process_lives(tmp_path: Path) -> None:
    home.write_status(tmp_path, url="http://x")
    assert home.read_status(tmp_path) == {"pid": os.getpid(), "url": "http://x"}
    home.remove_status(tmp_path)
    with pytest.raises(NotServing, match="openrl serve"):
        home.read_status(tmp_path)


def test_a_status_left_behind_by_a_killed_process_is_none(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    home.write_status(tmp_path, pid=int(gone.stdout))
    with pytest.raises(NotServing):
        home.read_status(tmp_path)
