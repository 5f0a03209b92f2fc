"""Policy versions on this machine's disk, so that a worker fetches each once from a depot that is far away.

Workers of one machine may share the folder: entries appear and go whole, and whoever finds one gone or broken fetches
it again. Knows no engines, and of the depot a function only.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from openrl.depot.filesystem import FsspecDepot
from openrl.domain.errors import DepotDamaged, DepotUnreachable
from openrl.domain.ids import DepotKey
from workers.sample.fetching import Fetch

log = logging.getLogger(__name__)


class PolicyCache:
    """The versions used last, in files of `limit_bytes` at most (and for a moment the newest beyond). A folder that
    cannot be written keeps nothing and stands in nobody's way. From any thread."""

    def __init__(self, fetch: Fetch, folder: Path, limit_bytes: int) -> None:
        self._fetch, self._folder, self._limit_bytes = fetch, folder, limit_bytes
        self._files = FsspecDepot(f"file://{folder}", durable=False)
        with suppress(DepotUnreachable):
            self._files.tidy()

    def get(self, key: DepotKey) -> Mapping[str, bytes]:
        """The version's files, every byte as it was written. Raises what `fetch` raises."""
        name = sha256(key.encode()).hexdigest()
        files = self._kept(name)
        if files is None:
            files = self._fetch(key)
            self._keep(name, files)
        return files

    def _kept(self, name: str) -> Mapping[str, bytes] | None:
        try:
            files = self._files.get_folder(name)
        except (KeyError, DepotDamaged) as error:
            if isinstance(error, DepotDamaged):
                log.warning("fetched again: %s", error, extra={"action": "policy_cache"})
            self._drop(name)  # of one that lost a file too
            return None
        except DepotUnreachable as error:
            log.warning("not read: %s", error, extra={"action": "policy_cache"})
            return None
        with suppress(OSError):  # another worker made room
            os.utime(self._folder / name)
        return files

    def _keep(self, name: str, files: Mapping[str, bytes]) -> None:
        size = sum(map(len, files.values()))
        if size > self._limit_bytes:
            return
        try:
            self._files.put_folder(name, files)
            self._make_room(name, self._limit_bytes)
            self._files.tidy()
        except (DepotUnreachable, OSError) as error:  # the folder may be deleted at any time, and its disk be full
            log.warning("not kept: %s", error, extra={"action": "policy_cache"})
            with suppress(OSError):
                self._make_room(name, sum(entry[1] for entry in self._entries()) // 2)

    def _make_room(self, newest: str, limit_bytes: int) -> None:
        """Entries used longest ago go until the rest fits."""
        entries = self._entries()
        taken = sum(size for _, size, name in entries if name == newest)
        for _, size, name in entries:
            if name != newest:
                taken += size
                if taken > limit_bytes:
                    self._drop(name)
                    taken -= size

    def _entries(self) -> list[tuple[float, int, str]]:
        """When each was used, its bytes, its name; the one used last first."""
        return sorted((entry for path in self._folder.iterdir() if (entry := _entry(path))), reverse=True)

    def _drop(self, name: str) -> None:
        with suppress(DepotUnreachable):  # another worker is at it too
            self._files.delete_folder(name)


def _entry(path: Path) -> tuple[float, int, str] | None:
    """When it was used, its bytes, its name; None for what is none or has just gone."""
    try:
        if path.name.startswith("."):
            return None
        return path.stat().st_mtime, sum(file.stat().st_size for file in path.iterdir()), path.name
    except OSError:
        return None
