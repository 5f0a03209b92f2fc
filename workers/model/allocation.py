"""A device's memory: how much a pass may take, whether an error says that there was none, and how to let go of it."""

import ctypes
import gc

import torch

from openrl.machine import free_memory_bytes

#: What allocators say that have no exception of their own: PyTorch's on the CPU and on MPS, cuBLAS, C++.
_PHRASES = ("can't allocate memory", "out of memory", "ALLOC_FAILED", "bad_alloc", "bad allocation")


def available_bytes(device: torch.device) -> int:
    """What may still be taken, what PyTorch holds unused included; of a CPU the machine's, or the container's."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type == "mps":  # shares main memory, of which Metal recommends a part
        here = torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
        return max(0, min(here, free_memory_bytes() + _unused_by_mps()))
    return free_memory_bytes()


def ran_out(error: BaseException) -> bool:
    """Whether the error means that an allocation failed."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)


def let_go(device: torch.device) -> None:
    """Gives back what PyTorch keeps for later. Call it when the failed pass is forgotten, outside its `except`."""
    gc.collect()  # checkpointed layers refer to each other in circles
    if device.type == "cpu":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's: others give back by themselves
        if trim is not None:
            trim(0)
    elif device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def _unused_by_mps() -> int:
    return torch.mps.driver_allocated_memory() - torch.mps.current_allocated_memory()
