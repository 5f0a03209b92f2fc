"""What this process may use of the machine: cores, memory, the processor's instructions. No torch, no settings."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CPUINFO = Path("/proc/cpuinfo")
#: x86 instruction sets that multiply bfloat16 matrices in hardware; without them bfloat16 is slower than float32.
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Cores this process may really use: affinity, and the container's CPU quota where there is one."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota(cgroup)
    return affine if quota is None else max(1, min(affine, int(quota)))


def free_memory_bytes(cgroup: Path = CGROUP) -> int:
    """Main memory that processes may still take: the machine's, or the container's where that is less."""
    import psutil  # here, because the command line is imported where only the client is installed

    free = int(psutil.virtual_memory().available)
    left = _memory_left(cgroup)
    return free if left is None else max(0, min(free, left))


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Instruction set flags of the first core; empty where the system does not tell."""
    if not cpuinfo.exists():
        return frozenset()
    flags = (line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    return frozenset(next(flags, ":").partition(":")[2].split())


def multiplies_bfloat16(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor multiplies bfloat16 in hardware."""
    return bool(BF16_FLAGS & cpu_flags(cpuinfo))


def _cpu_quota(cgroup: Path) -> float | None:
    """Cores' worth of CPU time per period, for cgroup v2 (`cpu.max`) and v1; None where there is no bound."""
    second, first = cgroup / "cpu.max", cgroup / "cpu"
    if second.exists():
        quota, period = second.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    if (first / "cpu.cfs_quota_us").exists():
        micros = int((first / "cpu.cfs_quota_us").read_text())
        return None if micros <= 0 else micros / int((first / "cpu.cfs_period_us").read_text())
    return None


def _memory_left(cgroup: Path) -> int | None:
    """Bytes up to the container's bound, for cgroup v2 (`memory.max`) and v1; None where there is no bound. What the
    kernel keeps of files counts as left: it gives that back when asked."""
    first = cgroup / "memory"
    for limit, used, stat, key in (
        (cgroup / "memory.max", cgroup / "memory.current", cgroup / "memory.stat", "inactive_file"),
        (
            first / "memory.limit_in_bytes",
            first / "memory.usage_in_bytes",
            first / "memory.stat",
            "total_inactive_file",
        ),
    ):
        if limit.exists() and used.exists():
            bound = limit.read_text().strip()
            return None if bound == "max" else int(bound) - int(used.read_text()) + _number_in(stat, key)
    return None


def _number_in(stat: Path, key: str) -> int:
    """A line's number in a file of `key number` lines; 0 where it has none."""
    lines = stat.read_text().splitlines() if stat.exists() else []
    return int(dict(line.split() for line in lines).get(key, 0))
