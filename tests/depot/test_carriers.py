import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openrl.depot import carriers
from openrl.depot.carriers import STALE_SECONDS, Disk, Remote


class Recorder:
    """An fsspec store that only tells in which order it was written to."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self.paths.append(path)


def test_a_remote_tree_is_finished_by_its_last_file() -> None:
    store = Recorder()
    Remote(store, "bucket/prefix/").write_tree("f", {"z": b"", "marker": b"", "a": b""}, last="marker")
    assert store.paths[-1] == "bucket/prefix/f/marker"
    assert set(store.paths) == {f"bucket/prefix/f/{name}" for name in ("a", "z", "marker")}


def test_of_many_writers_of_one_tree_exactly_one_wins(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    trees = [{"a": bytes([n]) * 1000, "marker": bytes([n])} for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda tree: disk.write_tree("f/1", tree, last="marker"), trees))
    assert {name: disk.read(f"f/1/{name}") for name in ("a", "marker")} in trees
    assert list((tmp_path / ".incoming").iterdir()) == []


def test_a_writer_that_runs_out_of_space_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    disk = Disk(str(tmp_path))
    monkeypatch.setattr(carriers, "_sync", full)
    with pytest.raises(OSError, match="no space"):
        disk.write_tree("f/1", {"a": b"1", "marker": b""}, last="marker")
    assert list((tmp_path / ".incoming").iterdir()) == []
    assert not (tmp_path / "f/1").exists()


def test_tidying_removes_what_is_old_and_spares_what_may_still_be_written(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    disk.write("a", b"1")
    incoming = tmp_path / ".incoming"
    (incoming / "young").write_bytes(b"1")
    (incoming / "old").write_bytes(b"1")
    (incoming / "old-tree").mkdir()
    (incoming / "old-tree" / "file").write_bytes(b"1")
    for old in ("old", "old-tree"):
        os.utime(incoming / old, (0, incoming.stat().st_mtime - STALE_SECONDS - 60))
    disk.tidy()
    assert [left.name for left in incoming.iterdir()] == ["young"]
    assert disk.read("a") == b"1"


def test_a_depot_whose_folder_was_emptied_is_made_again(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "depot"))
    disk.write("x/a", b"1")
    (tmp_path / "depot").rename(tmp_path / "gone")
    disk.write("x/a", b"2")
    disk.write_tree("f", {"marker": b""}, last="marker")
    assert (disk.read("x/a"), disk.read("f/marker")) == (b"2", b"")
