"""Where a depot's bytes lie: a folder of this machine or a shared volume, or any other store that fsspec speaks to.

Both carry files by path below a root and know nothing of keys, folders that appear at once, or our errors: they raise
OSError, and FileNotFoundError for what is not there.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

STALE_SECONDS = 3600  #: a half-written file this old has no writer any more


class Carrier(Protocol):
    atomic: bool  #: whether a tree appears at once; else files of its writers would mix if they had the same paths

    def write(self, path: str, data: bytes) -> None: ...
    def read(self, path: str) -> bytes: ...
    def remove(self, path: str) -> None: ...

    def write_tree(self, path: str, files: Mapping[str, bytes | memoryview], last: str) -> bool:
        """All files below `path`, and the one named `last` not before the others are safe. False where another writer's
        `last` is there already, and stays."""
        ...

    def remove_tree(self, path: str, first: str) -> None:
        """The file named `first` goes before the others."""
        ...

    def walk(self, path: str) -> Iterator[str]: ...

    def tidy(self) -> None:
        """Remove what writers that died have left."""
        ...


class Disk:
    """`file://`: plain system calls, which are many times faster than fsspec's local file system for small files.

    Everything is written under `.incoming` first and renamed: a reader sees all of it or nothing, and of two writers of
    one tree the first wins. Trees are synced to the device before they appear, single files are not.
    """

    atomic = True

    def __init__(self, root: str, *, durable: bool = True) -> None:
        """Not `durable`, trees are not synced: for what can be had again."""
        self.root, self._durable = Path(root), durable
        self._incoming = self.root / ".incoming"

    def write(self, path: str, data: bytes) -> None:
        arriving = self._arriving()
        try:
            _with_parents(arriving, lambda: arriving.write_bytes(data))
            _move(arriving, self.root / path)
        except OSError:  # a full disk must not be filled further
            arriving.unlink(missing_ok=True)
            raise

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def write_tree(self, path: str, files: Mapping[str, bytes | memoryview], last: str) -> bool:
        arriving, target = self._arriving(), self.root / path
        try:
            for name, data in files.items():
                _with_parents(arriving / name, partial((arriving / name).write_bytes, data))
            if self._durable:
                _sync_all(arriving / name for name in files)
            _move(arriving, target)
        except OSError:
            shutil.rmtree(arriving, ignore_errors=True)
            if not (target / last).exists():
                raise
            return False
        if self._durable:
            _sync(target.parent)
        return True

    def remove_tree(self, path: str, first: str) -> None:
        leaving = self._arriving()
        _with_parents(leaving, lambda: (self.root / path).rename(leaving))
        shutil.rmtree(leaving)

    def walk(self, path: str) -> Iterator[str]:
        for folder, below, names in os.walk(self.root / path):
            if self._incoming.name in below:
                below.remove(self._incoming.name)
            yield from (str(Path(folder, name).relative_to(self.root)) for name in names)

    def tidy(self) -> None:
        for left in self._incoming.iterdir() if self._incoming.exists() else ():
            with suppress(FileNotFoundError):  # its writer lives and has just finished
                if left.stat().st_mtime < time.time() - STALE_SECONDS:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _arriving(self) -> Path:
        return self._incoming / uuid4().hex


class Remote:
    """Any other fsspec store (`s3://`, `gs://`, `memory://`): an object appears whole there by itself, a tree does
    not."""

    atomic = False

    def __init__(self, files: Any, root: str) -> None:
        self._files, self._root = files, root.rstrip("/")

    def write(self, path: str, data: bytes) -> None:
        self._files.pipe_file(self._at(path), data)

    def read(self, path: str) -> bytes:
        return bytes(self._files.cat_file(self._at(path)))

    def remove(self, path: str) -> None:
        self._files.rm_file(self._at(path))

    def write_tree(self, path: str, files: Mapping[str, bytes | memoryview], last: str) -> bool:
        for name in files.keys() - {last}:
            self.write(f"{path}/{name}", bytes(files[name]))
        try:
            self._files.pipe_file(self._at(f"{path}/{last}"), bytes(files[last]), mode="create")
        except FileExistsError:
            return False
        return True

    def remove_tree(self, path: str, first: str) -> None:
        self._files.invalidate_cache()
        with suppress(FileNotFoundError):  # it was never complete
            self.remove(f"{path}/{first}")
        self._files.rm(self._at(path), recursive=True)

    def walk(self, path: str) -> Iterator[str]:
        self._files.invalidate_cache()
        for found in self._files.find(self._at(path)):
            yield found[len(self._root) :].lstrip("/")

    def tidy(self) -> None:
        pass  # nothing is ever half written here

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


def _with_parents(file: Path, act: Callable[[], object]) -> None:
    """Try first: the parents are nearly always there."""
    try:
        act()
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        act()


def _move(source: Path, target: Path) -> None:
    _with_parents(target, lambda: source.replace(target))


def _sync_all(files: Iterable[Path]) -> None:
    """Files and the names in their folders. At the same time: the device then does it in one go (2 ms for three files
    where one after another took 11, on a cloud disk)."""
    paths = {path for file in files for path in (file, file.parent)}
    with ThreadPoolExecutor(max_workers=min(16, len(paths))) as threads:
        list(threads.map(_sync, paths))


def _sync(path: Path) -> None:
    """Make a file's bytes, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
