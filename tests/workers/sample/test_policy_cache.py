import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openrl.depot.carriers import STALE_SECONDS
from openrl.depot.filesystem import FsspecDepot
from openrl.depot.port import Standing
from openrl.domain.errors import DepotUnreachable, EngineBusy
from openrl.domain.ids import DepotKey
from workers.sample.policy_cache import PolicyCache

SIZE = 1000


class Far:
    """A depot that is far away: versions of `SIZE` bytes in two files, and how often each was fetched."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.missing: set[str] = set()
        self.away = False

    def __call__(self, key: DepotKey) -> Mapping[str, bytes]:
        self.fetched.append(key)
        if self.away:
            raise EngineBusy("the depot does not answer")
        if key in self.missing:
            raise KeyError(key)
        return self.files(key)

    @staticmethod
    def files(key: str) -> Mapping[str, bytes]:
        return {"adapter_config.json": key.encode(), "adapter_model.safetensors": bytes(SIZE - len(key))}


@pytest.fixture
def far() -> Far:
    return Far()


def keys(count: int) -> list[DepotKey]:
    return [DepotKey(f"policies/{number}") for number in range(count)]


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def test_a_version_is_fetched_once_and_comes_back_byte_by_byte(far: Far, tmp_path: Path) -> None:
    (key,) = keys(1)
    for _ in range(2):
        cache = PolicyCache(far, tmp_path / "cache", 10 * SIZE)  # the second is another worker, or this one restarted
        for _ in range(2):
            assert cache.get(key) == far.files(key)
    assert far.fetched == [key]


def test_what_was_used_longest_ago_makes_room(far: Far, tmp_path: Path) -> None:
    cache = PolicyCache(far, tmp_path, 4 * SIZE)
    a, b, c, d = keys(4)
    for age, key in enumerate((a, b, c, a, d)):
        before = set(entries(tmp_path))
        cache.get(key)
        for made in set(entries(tmp_path)) - before:
            os.utime(made, (age, age))
    assert len(entries(tmp_path)) == 3
    far.fetched.clear()
    for key in (a, c, d):
        cache.get(key)
    assert far.fetched == []
    cache.get(b)
    assert far.fetched == [b]


def test_the_folder_stays_bounded_however_many_versions_pass_through(far: Far, tmp_path: Path) -> None:
    cache = PolicyCache(far, tmp_path, 6 * SIZE)
    for key in keys(50):
        cache.get(key)
        assert sum(file.stat().st_size for file in tmp_path.rglob("adapter_*")) <= 6 * SIZE
    assert len(entries(tmp_path)) >= 4


def test_a_version_that_alone_is_too_large_drives_nothing_out(far: Far, tmp_path: Path) -> None:
    (key,) = keys(1)
    cache = PolicyCache(far, tmp_path, SIZE - 1)
    for _ in range(2):
        assert cache.get(key) == far.files(key)
    assert (far.fetched, entries(tmp_path)) == ([key, key], [])


@pytest.mark.parametrize("damage", ["cut", "changed", "lost", "manifest"])
def test_a_broken_entry_is_fetched_again_and_mended(far: Far, tmp_path: Path, damage: str) -> None:
    (key,) = keys(1)
    PolicyCache(far, tmp_path, 10 * SIZE).get(key)
    (entry,) = entries(tmp_path)
    weights = entry / "adapter_model.safetensors"
    match damage:
        case "cut":
            weights.write_bytes(weights.read_bytes()[:-1])
        case "changed":
            weights.write_bytes(b"\x01" + weights.read_bytes()[1:])
        case "lost":
            weights.unlink()
        case "manifest":
            (entry / ".complete").write_bytes(b"{")
    cache = PolicyCache(far, tmp_path, 10 * SIZE)
    for _ in range(2):
        assert cache.get(key) == far.files(key)
    assert far.fetched == [key, key]


def test_what_is_kept_is_there_while_the_depot_is_not(far: Far, tmp_path: Path) -> None:
    kept, other = keys(2)
    cache = PolicyCache(far, tmp_path, 10 * SIZE)
    cache.get(kept)
    far.away = True
    assert cache.get(kept) == far.files(kept)
    with pytest.raises(EngineBusy):
        cache.get(other)


def test_a_version_that_is_missing_is_asked_for_again(far: Far, tmp_path: Path) -> None:
    (key,) = keys(1)
    cache = PolicyCache(far, tmp_path, 10 * SIZE)
    far.missing.add(key)
    with pytest.raises(KeyError):
        cache.get(key)
    far.missing.clear()
    assert cache.get(key) == far.files(key)


def test_a_folder_that_cannot_be_written_is_in_nobodys_way(far: Far, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    (key,) = keys(1)
    cache = PolicyCache(far, tmp_path / "cache", 10 * SIZE)
    for _ in range(2):
        assert cache.get(key) == far.files(key)


def test_a_disk_that_is_full_loses_the_older_half(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PolicyCache(far, tmp_path / "cache", 100 * SIZE)
    put, room = FsspecDepot.put_folder, 6

    def while_there_is_room(self: FsspecDepot, key: str, files: Mapping[str, bytes | memoryview]) -> Standing:
        if len(entries(tmp_path / "cache")) >= room:
            raise DepotUnreachable("file://cache", "no space left on device")
        return put(self, key, files)

    monkeypatch.setattr(FsspecDepot, "put_folder", while_there_is_room)
    for number, key in enumerate(keys(8)):
        assert cache.get(key) == far.files(key)
        for path in entries(tmp_path / "cache"):  # the clock of files is too coarse to tell them apart
            os.utime(path, (number, number)) if path.stat().st_mtime > 1000 else None
    assert len(entries(tmp_path / "cache")) == 3 + 1
    far.fetched.clear()
    for key in keys(8)[4:6]:
        cache.get(key)
    assert far.fetched == []


def test_the_folder_may_be_deleted_at_any_time(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_folder = FsspecDepot.put_folder

    def then_deleted(self: FsspecDepot, key: str, files: Mapping[str, bytes | memoryview]) -> None:
        put_folder(self, key, files)
        shutil.rmtree(tmp_path / "cache")

    monkeypatch.setattr(FsspecDepot, "put_folder", then_deleted)
    (key,) = keys(1)
    cache = PolicyCache(far, tmp_path / "cache", 10 * SIZE)
    assert cache.get(key) == far.files(key)


def test_what_a_crash_left_is_cleaned_up(far: Far, tmp_path: Path) -> None:
    left = tmp_path / ".incoming" / "half"
    left.mkdir(parents=True)
    (left / "adapter_model.safetensors").write_bytes(b"half")
    PolicyCache(far, tmp_path, 10 * SIZE)
    assert left.exists(), "its writer may be another worker, at work"
    os.utime(left, (0, left.stat().st_mtime - STALE_SECONDS - 60))
    PolicyCache(far, tmp_path, 10 * SIZE)
    assert not left.exists()


def test_workers_that_share_a_folder_do_one_another_no_harm(far: Far, tmp_path: Path) -> None:
    """Small enough that each drives out what the other reads."""
    caches = [PolicyCache(far, tmp_path, 2 * SIZE) for _ in range(4)]
    wanted = [(caches[number % 4], key) for number, key in enumerate(keys(5) * 40)]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda pair: pair[0].get(pair[1]), wanted))
    assert got == [far.files(key) for _, key in wanted]
    assert list((tmp_path / ".incoming").iterdir()) == []


def test_no_key_becomes_a_path(far: Far, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    PolicyCache(far, tmp_path / "inside", 10 * SIZE).get(DepotKey("../outside/\x00/ü"))
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
