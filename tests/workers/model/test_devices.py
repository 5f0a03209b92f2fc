from pathlib import Path

import pytest
import torch

from openrl.domain.errors import SettingInvalid
from workers.model import devices

CPU = torch.device("cpu")


def test_bfloat16_is_chosen_only_where_the_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cpu_flags", lambda: frozenset({"avx2", "avx512_bf16"}))
    assert devices.choose_dtype("auto", CPU) is torch.bfloat16
    monkeypatch.setattr(devices, "cpu_flags", lambda: frozenset({"avx2"}))
    assert devices.choose_dtype("auto", CPU) is torch.float32
    assert devices.choose_dtype("auto", torch.device("cuda")) is torch.bfloat16
    assert devices.choose_dtype("bfloat16", CPU) is torch.bfloat16


def test_flags_are_those_of_the_first_core(tmp_path: Path) -> None:
    source = tmp_path / "cpuinfo"
    source.write_text("processor : 0\nflags\t\t: fpu avx2 amx_bf16\n\nprocessor : 1\nflags : fpu\n")
    assert devices.cpu_flags(source) == {"fpu", "avx2", "amx_bf16"}
    assert devices.cpu_flags(tmp_path / "none") == frozenset()


def test_wishes_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(SettingInvalid, match=r"worker\.device"):
        devices.choose_device("tpu")
    with pytest.raises(SettingInvalid, match=r"worker\.dtype"):
        devices.choose_dtype("float16", CPU)


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("250000 100000", 2), ("10000 100000", 1)])
def test_the_cgroup_quota_bounds_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    read = devices._cgroup_quota
    monkeypatch.setattr(devices, "_cgroup_quota", lambda: read(tmp_path))
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert devices.usable_cores() == cores


def test_threads_are_set_and_told() -> None:
    before = torch.get_num_threads()
    try:
        assert devices.set_threads(1) == 1 and torch.get_num_threads() == 1
        assert devices.set_threads(0) == devices.usable_cores()
    finally:
        torch.set_num_threads(before)
