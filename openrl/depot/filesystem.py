"""The depot over fsspec: one URL, one root; see `port.Depot` for what it promises.

A key is a relative path of plain names, `adapters/3f9a/adapter_model.safetensors`; a name with a leading dot is ours. A
folder is complete once its manifest is there (`manifest.py`). Where the store cannot let a whole folder appear at once,
each writer's files lie below the folder apart from others', and the manifest tells whose count.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from fsspec.core import url_to_fs

from openrl.depot.carriers import Carrier, Disk, Remote
from openrl.depot.manifest import Manifest
from openrl.depot.port import Standing
from openrl.domain.errors import DepotDamaged, DepotUnreachable

MANIFEST = ".complete"
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)  #: a key below a file, or a folder's, is none
_KEY = re.compile(r"[A-Za-z0-9_:=+-][A-Za-z0-9_:=+.-]*(/[A-Za-z0-9_:=+-][A-Za-z0-9_:=+.-]*)*")


class FsspecDepot:
    """Thread-safe. One per process: the remote stores' connections must not cross a fork.

    `url` is `file:///FOLDER` or any other that fsspec knows (`s3://bucket/prefix`; `memory://` for tests). Raises
    DepotUnreachable for one whose driver is missing, and so does every method when the store fails.
    """

    def __init__(self, url: str, *, durable: bool = True) -> None:
        """Not `durable`, a folder on this machine is not synced to its device: for what can be had again."""
        self.url = url
        self._carrier = _carrier(url, durable)

    @property
    def folder(self) -> Path | None:
        """Where it lies on this machine or a volume of its; None for any other store."""
        return self._carrier.root if isinstance(self._carrier, Disk) else None

    def put(self, key: str, data: bytes) -> None:
        with self._reached():
            self._carrier.write(_valid(key), data)

    def get(self, key: str) -> bytes:
        with self._reached(key):
            return self._carrier.read(_valid(key))

    def delete(self, key: str) -> None:
        with self._reached(), suppress(*ABSENT):
            self._carrier.remove(_valid(key))

    def put_folder(self, key: str, files: Mapping[str, bytes | memoryview]) -> Standing:
        assert files, f"{key}: an empty folder"
        at = "" if self._carrier.atomic else uuid4().hex
        mine = Manifest.of({_valid(name): data for name, data in files.items()}, at)
        standing = self._manifest(_valid(key)) or self._written(key, files, mine)
        return Standing(standing.size_bytes, same=standing.same_as(mine))

    def _written(self, key: str, files: Mapping[str, bytes | memoryview], mine: Manifest) -> Manifest:
        """The manifest of the folder that stands there now."""
        tree = {mine.path(name): data for name, data in files.items()}
        with self._reached():
            if self._carrier.write_tree(key, {**tree, MANIFEST: mine.encoded()}, last=MANIFEST):
                return mine
        standing = self._manifest(key)
        if standing is None:
            raise DepotUnreachable(self.url, f"{key} was deleted while it was written")
        if standing.at != mine.at:  # else a store told that ours was there before, after an answer of its got lost
            for path in tree:
                self.delete(f"{key}/{path}")
        return standing

    def get_folder(self, key: str) -> dict[str, bytes]:
        """Raises KeyError where it is not complete or has just been deleted, DepotDamaged where bytes are not those
        that were written."""
        manifest = self._manifest(_valid(key))
        if manifest is None:
            raise KeyError(key)
        with self._reached(key):
            files = {name: self._carrier.read(f"{key}/{manifest.path(name)}") for name in manifest.files}
        for name, data in files.items():
            if problem := manifest.problem(name, data):
                raise DepotDamaged(self.url, f"{key}/{name} is damaged: {problem}")
        return files

    def has_folder(self, key: str) -> bool:
        return self._manifest(_valid(key)) is not None

    def delete_folder(self, key: str) -> None:
        with self._reached(), suppress(*ABSENT):
            self._carrier.remove_tree(_valid(key), first=MANIFEST)

    def list(self, prefix: str) -> Iterator[str]:
        """Keys of the files that were put below a folder, `""` for all; in no order."""
        if prefix:
            _valid(prefix)
        with self._reached(), suppress(*ABSENT):
            yield from filter(_KEY.fullmatch, self._carrier.walk(prefix))  # not ours: manifests and probes

    def check(self) -> None:
        """Write, read back and delete a probe, and tidy up; raises DepotUnreachable with what is wrong."""
        probe, data = f".probe/{uuid4().hex}", b"openrl"
        try:
            self._carrier.write(probe, data)
            read = self._carrier.read(probe)
            self._carrier.remove(probe)
            first, second = (self._carrier.write_tree(probe, {"a": data, MANIFEST: data}, last=MANIFEST) for _ in "ab")
            self._carrier.remove_tree(probe, first=MANIFEST)
            self._carrier.tidy()
        except Exception as error:  # stores have exceptions of their own for a bad login or a missing bucket
            raise DepotUnreachable(self.url, _told(error)) from error
        if read != data:
            raise DepotUnreachable(self.url, "what was written is not what is read")
        if not first or second:
            raise DepotUnreachable(
                self.url, "of two writers of one file the second must be refused; it has to offer that"
            )

    def tidy(self) -> None:
        """Remove what writers that died have left."""
        with self._reached():
            self._carrier.tidy()

    def _manifest(self, key: str) -> Manifest | None:
        with self._reached():
            try:
                return Manifest.decoded(self._carrier.read(f"{key}/{MANIFEST}"))
            except ABSENT:
                return None
            except ValueError as error:
                raise DepotDamaged(self.url, f"{key}/{MANIFEST} is damaged: {error}") from error

    @contextmanager
    def _reached(self, key: str | None = None) -> Iterator[None]:
        """The store's failures as ours. With a key, that it is not there is a KeyError."""
        try:
            yield
        except ABSENT as error:
            if key is None:
                raise DepotUnreachable(self.url, _told(error)) from error
            raise KeyError(key) from error
        except (AssertionError, DepotUnreachable):
            raise
        except Exception as error:  # remote stores have exceptions of their own
            raise DepotUnreachable(self.url, _told(error)) from error


def _carrier(url: str, durable: bool) -> Carrier:
    try:
        files, root = url_to_fs(url)
    except (ImportError, ValueError) as error:  # no such protocol, or its driver is not installed
        raise DepotUnreachable(url, _told(error)) from error
    return Disk(root, durable=durable) if "file" in files.protocol else Remote(files, root)


def _valid(key: str) -> str:
    assert _KEY.fullmatch(key), f"{key!r} is no depot key: names of letters, digits and _:=+.- with / between them"
    return key


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
