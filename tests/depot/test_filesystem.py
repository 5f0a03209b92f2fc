import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from openrl.depot.filesystem import MANIFEST, FsspecDepot
from openrl.depot.port import Depot, Standing
from openrl.domain.errors import DepotDamaged, DepotUnreachable

ADAPTER = {"adapter_config.json": b"{}", "adapter_model.safetensors": bytes(range(256)) * 40}


@pytest.fixture(params=["file", "memory"])
def depot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Depot]:
    url = f"file://{tmp_path}/depot" if request.param == "file" else f"memory://{uuid4().hex}"
    yield FsspecDepot(url)


def test_what_is_put_can_be_got_replaced_and_deleted(depot: Depot) -> None:
    depot.put("ops/3f9a/body", b"one")
    depot.put("ops/3f9a/body", b"two")
    assert depot.get("ops/3f9a/body") == b"two"
    depot.delete("ops/3f9a/body")
    with pytest.raises(KeyError, match="ops/3f9a/body"):
        depot.get("ops/3f9a/body")


def test_nothing_is_as_good_a_content_as_any(depot: Depot) -> None:
    depot.put("empty", b"")
    assert depot.get("empty") == b""


def test_absent_keys_may_be_deleted_and_cannot_be_got(depot: Depot) -> None:
    depot.put("a", b"1")
    for absent in ("b", "a/b", "x/y/z"):
        depot.delete(absent)
        depot.delete_folder(absent)
        with pytest.raises(KeyError):
            depot.get(absent)
        with pytest.raises(KeyError):
            depot.get_folder(absent)
        assert not depot.has_folder(absent)
    assert depot.get("a") == b"1"


def test_a_folder_comes_back_with_all_its_files(depot: Depot) -> None:
    written = depot.put_folder("adapters/s:train:0/7", ADAPTER)
    assert written == Standing(sum(map(len, ADAPTER.values())), same=True)
    assert depot.has_folder("adapters/s:train:0/7")
    assert depot.get_folder("adapters/s:train:0/7") == ADAPTER


def test_a_complete_folder_is_never_changed(depot: Depot) -> None:
    first = depot.put_folder("adapters/1", ADAPTER)
    assert depot.put_folder("adapters/1", ADAPTER) == first
    for other in ({"other": b"1"}, {**ADAPTER, "adapter_config.json": b"[]"}, {**ADAPTER, "more": b""}):
        assert depot.put_folder("adapters/1", other) == Standing(first.size_bytes, same=False)
    assert depot.get_folder("adapters/1") == ADAPTER


def test_of_two_writers_at_once_one_wins_with_all_its_files(depot: Depot) -> None:
    """The slower one had seen no manifest before it began."""
    assert isinstance(depot, FsspecDepot)
    mine, others = {"a": b"1", "b": b"1"}, {"a": b"2", "b": b"2", "c": b"2"}
    write_tree = depot._carrier.write_tree

    def after_another(path: str, files: dict[str, bytes], last: str) -> bool:
        FsspecDepot(depot.url).put_folder(path, others)
        return write_tree(path, files, last)

    depot._carrier.write_tree = after_another  # type: ignore[method-assign, assignment]
    assert depot.put_folder("adapters/1", mine) == Standing(3, same=False)
    assert depot.get_folder("adapters/1") == others
    assert len(list(depot.list("adapters/1"))) == len(others), "the loser left nothing"


def test_a_writer_that_died_half_way_is_in_nobodys_way(depot: Depot) -> None:
    assert isinstance(depot, FsspecDepot)
    write = depot._carrier.write

    def dying(path: str, data: bytes) -> None:
        write(path, data)
        raise KeyboardInterrupt

    if not depot._carrier.atomic:
        depot._carrier.write = dying  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            depot.put_folder("adapters/1", {"a": b"half", "b": b"half"})
        depot._carrier.write = write  # type: ignore[method-assign]
    assert not depot.has_folder("adapters/1")
    assert depot.put_folder("adapters/1", ADAPTER).same
    assert depot.get_folder("adapters/1") == ADAPTER


def test_a_store_that_says_ours_was_there_already_has_ours(depot: Depot) -> None:
    """Its first answer got lost, and its client asked again."""
    assert isinstance(depot, FsspecDepot)
    write_tree = depot._carrier.write_tree

    def asked_twice(path: str, files: dict[str, bytes], last: str) -> bool:
        write_tree(path, files, last)
        return False

    depot._carrier.write_tree = asked_twice  # type: ignore[method-assign, assignment]
    assert depot.put_folder("adapters/1", ADAPTER).same
    assert depot.get_folder("adapters/1") == ADAPTER


def test_files_without_their_marker_are_no_folder(depot: Depot) -> None:
    depot.put("adapters/1/adapter_config.json", b"half")
    assert not depot.has_folder("adapters/1")
    with pytest.raises(KeyError):
        depot.get_folder("adapters/1")


def test_a_deleted_folder_is_gone_with_all_files_and_can_be_written_anew(depot: Depot) -> None:
    depot.put_folder("adapters/1", ADAPTER)
    depot.put_folder("adapters/10", ADAPTER)
    depot.delete_folder("adapters/1")
    assert not depot.has_folder("adapters/1")
    assert list(depot.list("adapters/1")) == []
    assert depot.has_folder("adapters/10")
    depot.put_folder("adapters/1", {"other": b"1"})
    assert depot.get_folder("adapters/1") == {"other": b"1"}


@pytest.mark.parametrize(("damaged", "problem"), [(b"{", "1 of 2 bytes"), (b"[]", "checksum")])
def test_a_folder_with_other_bytes_than_were_written_is_reported(depot: Depot, damaged: bytes, problem: str) -> None:
    depot.put_folder("adapters/1", ADAPTER)
    (config,) = (key for key in depot.list("adapters/1") if key.endswith("adapter_config.json"))
    depot.put(config, damaged)
    with pytest.raises(DepotDamaged, match=problem):
        depot.get_folder("adapters/1")


def test_a_folder_of_an_earlier_release_reads_as_before(depot: Depot) -> None:
    assert isinstance(depot, FsspecDepot)
    sizes = {name: len(data) for name, data in ADAPTER.items()}
    depot._carrier.write_tree("adapters/1", {**ADAPTER, MANIFEST: json.dumps(sizes).encode()}, last=MANIFEST)
    assert depot.get_folder("adapters/1") == ADAPTER
    assert depot.put_folder("adapters/1", {"other": b"1"}) == Standing(sum(sizes.values()), same=False)
    depot.put("adapters/1/adapter_config.json", b"{")
    with pytest.raises(DepotDamaged, match="1 of 2 bytes"):
        depot.get_folder("adapters/1")


def test_a_folder_whose_manifest_is_no_manifest_is_reported(depot: Depot) -> None:
    assert isinstance(depot, FsspecDepot)
    for manifest in (b"", b"[]", b'{"files": {"a": {}}}', b'{"a": "b"}', b"{}", b'{"at": "", "files": {}}'):
        depot._carrier.write(f"adapters/1/{MANIFEST}", manifest)
        with pytest.raises(DepotDamaged, match="complete is damaged"):
            depot.get_folder("adapters/1")


def test_listing_names_what_was_put_and_nothing_of_ours(depot: Depot) -> None:
    depot.check()
    depot.put("ops/1", b"1")
    depot.put("ops/2/body", b"2")
    depot.put_folder("adapters/1", ADAPTER)
    assert set(depot.list("ops")) == {"ops/1", "ops/2/body"}
    found = set(depot.list(""))
    assert found > {"ops/1", "ops/2/body"}
    assert {key.rpartition("/")[2] for key in found if key.startswith("adapters/1/")} == set(ADAPTER)
    assert len(found) == 2 + len(ADAPTER)
    assert list(depot.list("absent")) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "..", "a/../b", ".probe", "a/.b", "a b", "a\\b", "ä", "a\n"])
def test_a_key_that_is_no_key_is_our_mistake(depot: Depot, key: str) -> None:
    for act in (
        depot.get,
        depot.delete,
        depot.has_folder,
        depot.get_folder,
        depot.delete_folder,
        lambda key: depot.put(key, b""),
        lambda key: depot.put_folder(key, ADAPTER),
        lambda key: depot.put_folder("f", {key: b""}),
    ):
        with pytest.raises(AssertionError, match="no depot key"):
            act(key)


@given(st.text())
def test_no_key_leads_out_of_the_depot(key: str) -> None:
    depot = FsspecDepot("memory://inside")
    try:
        depot.put(key, b"")
    except AssertionError:
        return
    assert key in set(depot.list(""))
    depot.delete(key)


def test_a_check_passes_and_leaves_nothing(depot: Depot) -> None:
    depot.check()
    assert list(depot.list("")) == []


def test_a_store_that_overwrites_what_it_must_not_is_told_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    depot = FsspecDepot(f"memory://{uuid4().hex}")
    pipe_file = MemoryFileSystem.pipe_file

    def careless(self: MemoryFileSystem, path: str, value: bytes, mode: str = "overwrite") -> None:
        pipe_file(self, path, value)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", careless)
    with pytest.raises(DepotUnreachable, match="the second must be refused"):
        depot.check()


def test_readers_see_whole_files_while_writers_replace_them(depot: Depot) -> None:
    bodies = [bytes([n]) * 50_000 for n in range(8)]
    depot.put("hot", bodies[0])
    with ThreadPoolExecutor(8) as threads:
        writing = [threads.submit(depot.put, "hot", bodies[n % 8]) for n in range(200)]
        read = [threads.submit(depot.get, "hot").result() for _ in range(200)]
        for done in writing:
            done.result()
    assert set(read) <= set(bodies)


def test_an_unknown_protocol_and_a_missing_driver_are_told(tmp_path: Path) -> None:
    with pytest.raises(DepotUnreachable, match="nonsense"):
        FsspecDepot("nonsense://bucket")


def test_a_store_that_cannot_be_written_is_unreachable(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    depot = FsspecDepot(f"file://{blocked}")
    for act in (
        depot.check,
        lambda: depot.put("a", b"1"),
        lambda: depot.put_folder("f", ADAPTER),
    ):
        with pytest.raises(DepotUnreachable, match=str(blocked)):
            act()
