"""Between torch tensors and the domain's arrays of raw bytes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from openrl.domain.tensor import DType, Tensor

_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FLOAT32: np.dtype("<f4"),
    DType.INT64: np.dtype("<i8"),
    DType.INT32: np.dtype("<i4"),
}


def from_domain(tensor: Tensor) -> torch.Tensor:
    """A torch tensor on the CPU, of the same dtype and shape, with its own memory."""
    flat = np.frombuffer(tensor.data, _NUMPY[tensor.dtype]).astype(_NUMPY[tensor.dtype].newbyteorder("="))
    return torch.from_numpy(flat.reshape(tensor.shape))


def to_domain(array: torch.Tensor | NDArray[np.generic] | list[int] | list[float], dtype: DType) -> Tensor:
    """Raw little-endian bytes of anything array-like."""
    numbers = array.cpu().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
    packed = np.ascontiguousarray(numbers, _NUMPY[dtype])
    return Tensor(dtype=dtype, shape=packed.shape, data=packed.tobytes())
