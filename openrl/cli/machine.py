"""What this machine has, read without torch: packages, memory, bfloat16, the size of a model."""

import importlib.util
import json
import os
import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path

import psutil

from openrl.domain.errors import ModelWontFit, PackageMissing

#: Import names of what the components need; `serve` looks for them before it starts anything.
GATEWAY_PACKAGES = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "zstandard", "google.protobuf", "orjson")
CORE_PACKAGES = ("celery", "redis", "fsspec", "msgspec", "numpy", "pydantic_settings", "psutil")
DEVICE_PACKAGES = ("torch", "transformers", "safetensors")
FLOWER_PACKAGES = ("flower",)

PROCESS_GB = 1.0  #: of a worker beside its base weights: libraries, activations, a few adapters
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def missing_packages(names: Iterable[str]) -> list[str]:
    return [name for name in names if not _is_installed(name)]


def require_packages(names: Iterable[str]) -> None:
    """Raises PackageMissing for the first that is not installed."""
    for name in missing_packages(names):
        raise PackageMissing(name)


def parameters(folder: Path) -> int:
    """Parameters in a model folder's safetensors files, from their headers; 0 where there are none."""
    return sum(_count(file) for file in folder.glob("*.safetensors"))


def weight_bytes(dtype: str) -> int:
    """Bytes per base weight that a worker on this machine's CPU will use for that setting."""
    return 2 if dtype == "bfloat16" or (dtype == "auto" and has_fast_bf16()) else 4


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_fast_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU multiplies bfloat16 in hardware."""
    return bool(_BF16_FLAGS & set(cpu_flags(cpuinfo)))


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Instruction sets of the first core; empty where the system does not tell."""
    if not cpuinfo.exists():
        return []
    flags = (line for line in cpuinfo.read_text().splitlines() if line.startswith("flags"))
    return next(flags, ":").partition(":")[2].split()


def weights_in_main_memory(device: str) -> bool:
    """Whether that setting puts the base weights where `free_gb` looks; Apple's GPU shares the main memory."""
    return device in ("cpu", "mps") or (device == "auto" and not Path("/dev/nvidiactl").exists())


def free_gb(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Memory that processes may still take: the machine's, or the container's where that is less."""
    free = float(psutil.virtual_memory().available)
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if limit.exists() and used.exists() and (bound := limit.read_text().strip()) != "max":
        free = min(free, int(bound) - int(used.read_text()) + _reclaimable(cgroup / "memory.stat"))
    return free / 1e9


def needed_gb(folder: Path, dtype: str, copies: int) -> float:
    """Memory for `copies` workers that each hold the base weights."""
    return copies * (parameters(folder) * weight_bytes(dtype) / 1e9 + PROCESS_GB)


def require_memory(folder: Path, dtype: str, device: str, copies: int) -> None:
    """Raises ModelWontFit, for base weights in main memory; what a GPU holds, its worker finds out itself."""
    needed, free = needed_gb(folder, dtype, copies), free_gb()
    if needed > free and weights_in_main_memory(device):
        raise ModelWontFit(needed, free)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _count(safetensors: Path) -> int:
    with safetensors.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def _reclaimable(stat: Path) -> int:
    """Bytes of file cache that the kernel gives back when asked."""
    if not stat.exists():
        return 0
    fields = dict(line.split() for line in stat.read_text().splitlines())
    return int(fields.get("inactive_file", 0))
