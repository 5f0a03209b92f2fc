"""Which device, which number format, how many threads: read from the machine, chosen once at start."""

import os
from pathlib import Path

import torch

from openrl.domain.errors import SettingInvalid

#: x86 instruction sets that multiply bfloat16 matrices in hardware; without them bfloat16 is slower than float32.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def choose_device(wish: str) -> torch.device:
    """`auto` takes CUDA, else Apple's MPS, else the CPU. Raises SettingInvalid for a device that is not there."""
    if wish == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _mps() else "cpu")
    there = {"cpu": True, "mps": _mps(), "cuda": torch.cuda.is_available()}
    if not there.get(wish.partition(":")[0], False):
        raise SettingInvalid("worker.device", f"{wish!r} is not available here; use auto or cpu")
    return torch.device(wish)


def choose_dtype(wish: str, device: torch.device) -> torch.dtype:
    """The base weights' dtype; `auto` is bfloat16 where the device multiplies it in hardware, else float32."""
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if wish in named:
        return named[wish]
    if wish != "auto":
        raise SettingInvalid("worker.dtype", f"{wish!r} is unknown; use auto, float32 or bfloat16")
    fast = device.type == "cuda" or (device.type == "cpu" and bool(cpu_flags() & BF16_FLAGS))
    return torch.bfloat16 if fast else torch.float32


def set_threads(count: int) -> int:
    """Use `count` CPU threads inside an operation (0: as many cores as this process may use). Returns the number."""
    chosen = count or usable_cores()
    torch.set_num_threads(chosen)
    return chosen


def usable_cores() -> int:
    """Cores this process may really use: affinity, and the cgroup's CPU quota where there is one."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return affine if quota is None else max(1, min(affine, int(quota)))


def cpu_flags(source: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction set flags of the first core; empty where the system does not tell."""
    if not source.exists():
        return frozenset()
    for line in source.read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores' worth of CPU time per period, for cgroup v2 (`cpu.max`) and v1; None where there is no bound."""
    second = root / "cpu.max"
    if second.exists():
        quota, period = second.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    first = root / "cpu"
    if (first / "cpu.cfs_quota_us").exists():
        micros = int((first / "cpu.cfs_quota_us").read_text())
        return None if micros <= 0 else micros / int((first / "cpu.cfs_period_us").read_text())
    return None


def _mps() -> bool:
    return bool(torch.backends.mps.is_available())
