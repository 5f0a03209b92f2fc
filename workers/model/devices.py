"""Which device, which number format, how many threads: chosen once at start."""

import torch

from openrl.domain.errors import SettingInvalid
from openrl.machine import multiplies_bfloat16, usable_cores


def choose_device(wish: str) -> torch.device:
    """`auto` takes CUDA, else Apple's MPS, else the CPU. Raises SettingInvalid for a device that is not there."""
    if wish == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _mps() else "cpu")
    there = {"cpu": True, "mps": _mps(), "cuda": torch.cuda.is_available()}
    if not there.get(wish.partition(":")[0], False):
        raise SettingInvalid("OPENRL_WORKER__DEVICE", f"{wish!r} is not available here; use auto or cpu")
    return torch.device(wish)


def choose_dtype(wish: str, device: torch.device) -> torch.dtype:
    """The base weights' dtype; `auto` is bfloat16 where the device multiplies it in hardware, else float32."""
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if wish in named:
        return named[wish]
    if wish != "auto":
        raise SettingInvalid("OPENRL_WORKER__DTYPE", f"{wish!r} is unknown; use auto, float32 or bfloat16")
    fast = device.type == "cuda" or (device.type == "cpu" and multiplies_bfloat16())
    return torch.bfloat16 if fast else torch.float32


def set_tf32(wish: bool) -> None:
    """Whether CUDA may multiply float32 matrices in TF32; torch's own default depends on its version. No other device
    is concerned."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if wish else "ieee"


def set_threads(count: int, engines: int = 1) -> int:
    """Use `count` CPU threads (0: as many cores as this process may use) inside operations, shared out to `engines`
    that run side by side. Returns the number inside one operation."""
    chosen = max(1, (count or usable_cores()) // engines)
    torch.set_num_threads(chosen)
    return chosen


def side_by_side(device: torch.device, count: int) -> bool:
    """Whether training and sampling are better off with a thread each: the cores of a CPU are devices of their own,
    and two operations on half of them each wait for each other less than one on all."""
    return device.type == "cpu" and (count or usable_cores()) > 1


def _mps() -> bool:
    return bool(torch.backends.mps.is_available())
