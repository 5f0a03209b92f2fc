"""The depot: big bytes by key. Keys are derived by us (uuids and fixed words), never from a user's string."""

from collections.abc import Iterable, Mapping
from typing import Protocol


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

    def put_folder(self, key: str, files: Mapping[str, bytes | memoryview]) -> int:
        """Write files below `key`, then a marker that makes them visible at once; returns the bytes of the folder that
        stands there afterwards. It is immutable once its marker is there; writing it again does nothing."""
        ...

    def get_folder(self, key: str) -> dict[str, bytes]:
        """All files of a complete folder. Raises KeyError where the marker is missing."""
        ...

    def has_folder(self, key: str) -> bool: ...

    def delete_folder(self, key: str) -> None: ...

    def list(self, prefix: str) -> Iterable[str]:
        """Keys of files below a prefix."""
        ...

    def check(self) -> None:
        """Write, read back and delete a probe; raises DepotUnreachable with what is wrong."""
        ...
