"""The manifest of a folder in the depot: its files with sizes and checksums, and where they lie.

It is written last, so that whoever sees it sees everything, and whoever reads checks what came against it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    size: int  #: in bytes
    sha256: str | None  #: in hex; None in manifests of earlier releases


@dataclass(frozen=True, slots=True)
class Manifest:
    files: Mapping[str, Entry]
    at: str = ""  #: the folder below the manifest's own that one writer has for itself; empty where they share one

    @staticmethod
    def of(files: Mapping[str, bytes | memoryview], at: str = "") -> "Manifest":
        return Manifest({name: Entry(len(data), sha256(data).hexdigest()) for name, data in files.items()}, at)

    @staticmethod
    def decoded(data: bytes) -> "Manifest":
        """Of this release or an earlier one, which wrote sizes only. Raises ValueError for what is none."""
        told = json.loads(data)
        try:
            if isinstance(told.get("files"), dict):
                found = Manifest({name: _entry(each) for name, each in told["files"].items()}, str(told["at"]))
            else:
                found = Manifest({name: Entry(int(size), None) for name, size in told.items()})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError("not a manifest") from error
        if not found.files:
            raise ValueError("it names no files")
        return found

    def encoded(self) -> bytes:
        files = {name: {"size": each.size, "sha256": each.sha256} for name, each in self.files.items()}
        return json.dumps({"at": self.at, "files": files}).encode()

    @property
    def size_bytes(self) -> int:
        return sum(each.size for each in self.files.values())

    def path(self, name: str) -> str:
        """Of a file, below the folder."""
        return f"{self.at}/{name}" if self.at else name

    def problem(self, name: str, data: bytes) -> str | None:
        """What is wrong with the bytes of a file; None where nothing is."""
        told = self.files[name]
        if len(data) != told.size:
            return f"{len(data)} of {told.size} bytes"
        if told.sha256 is not None and sha256(data).hexdigest() != told.sha256:
            return "its checksum is another"
        return None

    def same_as(self, other: "Manifest") -> bool:
        """Whether the same files are in both; those of an earlier release are told apart by size alone."""
        return self.files.keys() == other.files.keys() and all(
            mine.size == other.files[name].size and mine.sha256 in (None, other.files[name].sha256)
            for name, mine in self.files.items()
        )


def _entry(told: Mapping[str, Any]) -> Entry:
    return Entry(int(told["size"]), str(told["sha256"]))
