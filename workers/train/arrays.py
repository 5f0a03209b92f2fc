"""Arrays of requests as torch tensors and back. Knows bytes and numbers only."""

from collections.abc import Sequence

import torch

from openrl.domain import tensor
from openrl.domain.tensor import DType

TORCH = {DType.FLOAT32: torch.float32, DType.INT64: torch.int64, DType.INT32: torch.int32}


def joined(parts: Sequence[tensor.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """All elements one after another, flat, on the CPU; `parts` must hold at least one element."""
    if len({part.dtype for part in parts}) > 1:
        return torch.cat([joined([part], dtype) for part in parts])
    # A bytearray, because torch warns of tensors over read-only memory.
    return torch.frombuffer(bytearray(b"".join(part.data for part in parts)), dtype=TORCH[parts[0].dtype]).to(dtype)


def floats(values: torch.Tensor, shape: tuple[int, ...]) -> tensor.Tensor:
    """A float32 tensor as bytes, in row-major order."""
    data = values.detach().to("cpu", torch.float32).contiguous().numpy().tobytes()
    return tensor.Tensor(dtype=DType.FLOAT32, shape=shape, data=data)
