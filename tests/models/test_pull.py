import json
import shutil
from pathlib import Path

import pytest

from openrl.domain.errors import BaseModelMissing
from openrl.models import pull as pulling
from openrl.models.catalogue import folder_of, is_model, named
from openrl.models.pull import pull


def _silent(_step: str, _done: float | None) -> None:
    pass


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pull(named("tiny"), folder_of(named("tiny"), tmp_path_factory.mktemp("home")), _silent)


def test_a_pulled_model_stands_alone_in_its_place(pulled: Path) -> None:
    assert is_model(pulled)
    assert [path.name for path in pulled.parent.iterdir()] == ["tiny"]


def test_where_it_came_from_is_recorded(pulled: Path) -> None:
    record = json.loads((pulled / "openrl.json").read_text())
    assert record["name"] == "tiny"
    assert "transformers" in record["made_with"]


def test_others_may_read_it(pulled: Path) -> None:
    assert all(path.stat().st_mode & 0o044 for path in pulled.iterdir())


def test_a_model_that_is_there_is_not_made_again(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(pulling, "_fill", never)
    assert pull(named("tiny"), pulled, _silent) == pulled


def test_who_comes_second_takes_the_first_ones(pulled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(pulled, folder)
    (tmp_path / "made").mkdir()
    pulling._put_in_place(tmp_path / "made", folder)
    assert is_model(folder)


def test_a_full_disk_is_told_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(BaseModelMissing, match=r"461 MB are needed in .* and 0 MB are free"):
        pull(named("smollm2-135m"), tmp_path / "smollm2-135m", _silent)
