"""Arrays between processes: raw little-endian bytes with a dtype and a shape, no array library."""

from dataclasses import dataclass
from enum import StrEnum
from math import prod


class DType(StrEnum):
    FLOAT32 = "float32"
    INT64 = "int64"
    INT32 = "int32"


ITEM_BYTES = {DType.FLOAT32: 4, DType.INT64: 8, DType.INT32: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A dense, row-major array. `data` is little-endian and has exactly as many bytes as `shape` asks for."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def __post_init__(self) -> None:
        wanted = self.elements * ITEM_BYTES[self.dtype]
        assert len(self.data) == wanted, f"{self.dtype} {self.shape} takes {wanted} bytes, got {len(self.data)}"
