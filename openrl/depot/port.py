"""The depot: big bytes by key. Keys are derived by us (uuids and fixed words), never from a user's string."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Standing:
    """The folder that stands under a key after it was written."""

    size_bytes: int
    same: bool  #: its files are those that were to be written; else an earlier writer's others stand there


class Depot(Protocol):
    def put(self, key: str, data: bytes) -> None:
        """Write whole or not at all; an existing key is replaced."""
        ...

    def get(self, key: str) -> bytes:
        """Raises KeyError where there is none."""
        ...

    def delete(self, key: str) -> None:
        """No error where there is none."""
        ...

    def put_folder(self, key: str, files: Mapping[str, bytes | memoryview]) -> Standing:
        """Write files below `key`, then a manifest that makes them visible at once. A folder is immutable once that is
        there: of several writers the first wins with all of its files, and writing it again does nothing."""
        ...

    def get_folder(self, key: str) -> dict[str, bytes]:
        """All files of a complete folder, checked against the manifest. Raises KeyError where it is missing."""
        ...

    def has_folder(self, key: str) -> bool: ...

    def delete_folder(self, key: str) -> None: ...

    def list(self, prefix: str) -> Iterable[str]:
        """Keys of files below a prefix."""
        ...

    def check(self) -> None:
        """Write, read back and delete a probe; raises DepotUnreachable with what is wrong."""
        ...
