from pathlib import Path

import pytest

from openrl import machine


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def _files(folder: Path, **texts: str) -> Path:
    """A control group's files; two underscores stand for the dot in a name."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("250000 100000", 2), ("10000 100000", 1)])
def test_a_containers_quota_bounds_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    assert machine.usable_cores(_files(tmp_path, cpu__max=quota)) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("300000", 3)])
def test_the_older_form_of_a_quota_counts_too(tmp_path: Path, quota: str, cores: int) -> None:
    _files(tmp_path / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert machine.usable_cores(tmp_path) == cores


def test_without_a_container_affinity_decides(tmp_path: Path) -> None:
    assert machine.usable_cores(tmp_path) == 8
    assert machine.free_memory_bytes(tmp_path) > 0


def test_a_containers_memory_bound_counts_where_it_is_less(tmp_path: Path) -> None:
    bounded = _files(tmp_path, memory__max="3000", memory__current="2500", memory__stat="anon 1\ninactive_file 1000")
    assert machine.free_memory_bytes(bounded) == 1500
    _files(tmp_path, memory__max="max")
    assert machine.free_memory_bytes(tmp_path) > 1500


def test_the_older_form_of_a_memory_bound_counts_too(tmp_path: Path) -> None:
    stat = "inactive_file 7\ntotal_inactive_file 100"
    _files(tmp_path / "memory", memory__limit_in_bytes="3000", memory__usage_in_bytes="2500", memory__stat=stat)
    assert machine.free_memory_bytes(tmp_path) == 600


def test_a_container_over_its_bound_has_nothing_left(tmp_path: Path) -> None:
    assert machine.free_memory_bytes(_files(tmp_path, memory__max="3000", memory__current="3001")) == 0


@pytest.mark.parametrize(("flags", "fast"), [("avx512_bf16", True), ("amx_bf16", True), ("avx512f", False)])
def test_flags_are_those_of_the_first_core(tmp_path: Path, flags: str, fast: bool) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nflags\t\t: avx512_bf16\n")
    assert machine.cpu_flags(cpuinfo) == {"fpu", flags}
    assert machine.multiplies_bfloat16(cpuinfo) is fast


def test_a_system_that_tells_no_flags_has_none(tmp_path: Path) -> None:
    assert machine.cpu_flags(tmp_path / "none") == frozenset()
    assert not machine.multiplies_bfloat16(tmp_path / "none")
