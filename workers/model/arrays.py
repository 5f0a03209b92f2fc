"""The domain's arrays of raw bytes as torch tensors and back. Knows bytes and numbers only."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from openrl.domain.tensor import DType, Tensor

_TORCH = {DType.FLOAT32: torch.float32, DType.INT64: torch.int64, DType.INT32: torch.int32}
_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FLOAT32: np.dtype("<f4"),
    DType.INT64: np.dtype("<i8"),
    DType.INT32: np.dtype("<i4"),
}


def from_domain(array: Tensor) -> torch.Tensor:
    """A torch tensor on the CPU, of the same dtype and shape, with its own memory."""
    return _flat(array.data, array.dtype).reshape(array.shape)


def joined(arrays: Sequence[Tensor], dtype: torch.dtype) -> torch.Tensor:
    """All elements one after another, flat, on the CPU, with their own memory. At least one array."""
    if len({array.dtype for array in arrays}) > 1:
        return torch.cat([joined([array], dtype) for array in arrays])
    return _flat(b"".join(array.data for array in arrays), arrays[0].dtype).to(dtype)


def to_domain(array: torch.Tensor | NDArray[np.generic] | list[int] | list[float], dtype: DType) -> Tensor:
    """Anything array-like, from any device, as bytes in row-major order."""
    if isinstance(array, torch.Tensor):
        array = array.detach().to("cpu", _TORCH[dtype]).numpy()
    packed = np.ascontiguousarray(array, _NUMPY[dtype])
    return Tensor(dtype=dtype, shape=packed.shape, data=packed.tobytes())


def _flat(data: bytes, dtype: DType) -> torch.Tensor:
    # A bytearray, because torch warns of tensors over read-only memory.
    little = np.frombuffer(bytearray(data), _NUMPY[dtype])
    return torch.from_numpy(little.astype(_NUMPY[dtype].newbyteorder("="), copy=False))
