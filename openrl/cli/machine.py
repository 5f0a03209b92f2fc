"""Whether this machine has what a service needs, judged without torch: packages, and memory for the base model."""

import importlib.util
import json
import struct
from collections.abc import Iterable
from math import prod
from pathlib import Path

from openrl.cli.errors import ModelWontFit, PackageMissing
from openrl.machine import free_memory_bytes, multiplies_bfloat16

#: Import names of what the components need; `serve` looks for them before it starts anything.
GATEWAY_PACKAGES = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "zstandard", "google.protobuf", "orjson")
CORE_PACKAGES = ("celery", "redis", "fsspec", "msgspec", "numpy", "pydantic_settings", "psutil")
DEVICE_PACKAGES = ("torch", "transformers", "safetensors")
FLOWER_PACKAGES = ("flower",)

PROCESS_GB = 1.0  #: of a worker beside its base weights: libraries, activations, a few adapters


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
    return 2 if dtype == "bfloat16" or (dtype == "auto" and multiplies_bfloat16()) else 4


def weights_in_main_memory(device: str) -> bool:
    """Whether that setting puts the base weights where `free_gb` looks; Apple's GPU shares the main memory."""
    return device in ("cpu", "mps") or (device == "auto" and not Path("/dev/nvidiactl").exists())


def free_gb() -> float:
    """Main memory that processes may still take."""
    return free_memory_bytes() / 1e9


def needed_gb(folder: Path, dtype: str, copies: int) -> float:
    """Memory for `copies` workers that each hold the base weights."""
    return copies * (parameters(folder) * weight_bytes(dtype) / 1e9 + PROCESS_GB)


def require_memory(folders: Iterable[Path], dtype: str, device: str, copies: int) -> None:
    """For `copies` workers of each base model. Raises ModelWontFit, for base weights in main memory; what a GPU holds,
    its worker finds out itself."""
    needed, free = sum(needed_gb(folder, dtype, copies) for folder in folders), free_gb()
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
