"""Arrays as they travel, into the domain's tensors: dense or CSR, any dtype of the schema, bounded when made dense.

Raw bytes stay raw bytes; numpy only checks and widens.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from openrl.domain.errors import FieldInvalid
from openrl.domain.tensor import DType, Tensor
from openrl.wire import tinker_pb2 as pb

Array = npt.NDArray[Any]

_AS_SENT: dict[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype("<f4"),
    pb.DTYPE_INT64: np.dtype("<i8"),
    pb.DTYPE_INT32: np.dtype("<i4"),
    pb.DTYPE_BFLOAT16: np.dtype("<u2"),
}
_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FLOAT32: np.dtype("<f4"),
    DType.INT64: np.dtype("<i8"),
    DType.INT32: np.dtype("<i4"),
}
_DOMAIN = {dtype: name for name, dtype in _NUMPY.items()}
_PROTO = {DType.FLOAT32: pb.DTYPE_FLOAT32, DType.INT64: pb.DTYPE_INT64, DType.INT32: pb.DTYPE_INT32}


@dataclass(slots=True)
class Allowance:
    """Bytes that the sparse tensors of one request may still take when they are made dense."""

    left: int

    def take(self, size: int, where: str) -> None:
        if size > self.left:
            raise FieldInvalid(
                where,
                f"takes {size} bytes when made dense and {self.left} are left for this request; "
                "send fewer datums per request, or fewer columns",
            )
        self.left -= size


def read_tensor(message: pb.Tensor, where: str, allowance: Allowance) -> Tensor:
    """The dense tensor; bfloat16 is widened to float32. Raises FieldInvalid where bytes, shape and indices disagree."""
    if message.dtype not in _AS_SENT:
        raise FieldInvalid(f"{where}.dtype", f"{message.dtype} is not a dtype; send float32, int64, int32 or bfloat16")
    shape = tuple(message.shape)
    if message.HasField("sparse_csr"):
        return tensor_of(_from_csr(message, shape, where, allowance))
    sent = _items(message.dense, _AS_SENT[message.dtype], where)
    shape = shape or (sent.size,)
    _check_shape(shape, sent.size, where)
    return tensor_of(_widened(sent, message.dtype).reshape(shape))


def read_tokens(chunks: list[bytes], where: str) -> Tensor:
    """Text chunks, each int32 bytes, as one run of tokens."""
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if len(data) % 4:
        raise FieldInvalid(where, f"{len(data)} bytes are no whole number of int32 tokens")
    return Tensor(dtype=DType.INT32, shape=(len(data) // 4,), data=data)


def dense_of_csr(values: Array, rows: Array, columns: Array, shape: tuple[int, ...], pad: int, where: str) -> Array:
    """Every unlisted cell becomes `pad`. The caller has made sure that `shape` may be allocated."""
    height, width = shape
    steps = np.diff(rows)
    if rows.size != height + 1 or rows[0] != 0 or (steps < 0).any() or rows[-1] != values.size:
        raise FieldInvalid(f"{where}.sparse_crow_indices", f"must rise from 0 to {values.size} in {height} steps")
    if columns.size != values.size:
        raise FieldInvalid(f"{where}.sparse_col_indices", f"has {columns.size} entries for {values.size} values")
    if columns.size and (columns.min() < 0 or columns.max() >= width):
        raise FieldInvalid(f"{where}.sparse_col_indices", f"must lie in 0..{width - 1}")
    dense = np.full(shape, pad, dtype=values.dtype)
    dense[np.repeat(np.arange(height), steps), columns] = values
    return dense


def check_matrix(shape: tuple[int, ...], where: str) -> None:
    if len(shape) != 2 or min(shape) < 0:
        raise FieldInvalid(f"{where}.shape", f"is {list(shape)}; a sparse tensor has rows and columns")


def array_of(tensor: Tensor) -> Array:
    """A read-only view of the tensor's bytes."""
    return np.frombuffer(tensor.data, dtype=_NUMPY[tensor.dtype]).reshape(tensor.shape)


def tensor_of(array: Array) -> Tensor:
    return Tensor(dtype=_DOMAIN[array.dtype], shape=array.shape, data=array.tobytes())


def tensor_message(tensor: Tensor) -> pb.Tensor:
    return pb.Tensor(dense=tensor.data, dtype=_PROTO[tensor.dtype], shape=tensor.shape)


def _from_csr(message: pb.Tensor, shape: tuple[int, ...], where: str, allowance: Allowance) -> Array:
    check_matrix(shape, where)
    values = _widened(_items(message.sparse_csr.values, _AS_SENT[message.dtype], where), message.dtype)
    allowance.take(prod(shape) * values.itemsize, where)
    rows = _items(message.sparse_csr.crow_indices, np.dtype("<i8"), f"{where}.sparse_crow_indices")
    columns = _items(message.sparse_csr.col_indices, np.dtype("<i8"), f"{where}.sparse_col_indices")
    if rows.size == 0:
        raise FieldInvalid(f"{where}.sparse_crow_indices", "is empty; it has one entry more than there are rows")
    return dense_of_csr(values, rows, columns, shape, 0, where)


def _items(data: bytes, dtype: np.dtype[Any], where: str) -> Array:
    if len(data) % dtype.itemsize:
        raise FieldInvalid(where, f"{len(data)} bytes are no whole number of {dtype.itemsize}-byte values")
    return np.frombuffer(data, dtype=dtype)


def _widened(sent: Array, dtype: int) -> Array:
    """bfloat16 is the upper half of a float32."""
    if dtype != pb.DTYPE_BFLOAT16:
        return sent
    return (sent.astype("<u4") << 16).view("<f4")


def _check_shape(shape: tuple[int, ...], elements: int, where: str) -> None:
    if min(shape) < 0 or prod(shape) != elements:
        raise FieldInvalid(f"{where}.shape", f"is {list(shape)} but {elements} values were sent")
