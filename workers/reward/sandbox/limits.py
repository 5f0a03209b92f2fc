"""What a child may use."""

import resource
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    memory_bytes: int = 1 << 30  #: more than the zygote had mapped
    cpu_seconds: int = 600
    file_bytes: int = 16 << 20  #: of one file
    disk_bytes: int = 64 << 20  #: of all its files
    files: int = 1024  #: that it may make
    open_files: int = 64
    processes: int = 64  #: threads too; where the kernel counts them by namespace


def apply(limits: Limits, *, count_processes: bool) -> None:
    """Bound this process and what comes of it, for good. macOS takes no bound on memory."""
    _bound(resource.RLIMIT_CORE, 0)
    _bound(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    _bound(resource.RLIMIT_FSIZE, limits.file_bytes)
    _bound(resource.RLIMIT_NOFILE, limits.open_files)
    if sys.platform == "linux":
        _bound(resource.RLIMIT_AS, _mapped_bytes() + limits.memory_bytes)
    if count_processes:
        _bound(resource.RLIMIT_NPROC, limits.processes)


def _bound(what: int, soft: int, hard: int | None = None) -> None:
    most = resource.getrlimit(what)[1]
    wanted = soft if hard is None else hard
    if most != resource.RLIM_INFINITY:
        soft, wanted = min(soft, most), min(wanted, most)
    resource.setrlimit(what, (soft, wanted))


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
