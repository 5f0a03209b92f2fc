import struct

import numpy as np
import pytest
import torch

from openrl.domain.tensor import DType, Tensor
from workers.model.arrays import from_domain, joined, to_domain

HALVES = Tensor(dtype=DType.FLOAT32, shape=(2,), data=struct.pack("<2f", 1.5, 2.0))
IDS = Tensor(dtype=DType.INT64, shape=(2, 1), data=struct.pack("<2q", 7, -1))


@pytest.mark.parametrize("array", [[1.5, 2.0], np.array([1.5, 2.0]), torch.tensor([1.5, 2.0], dtype=torch.bfloat16)])
def test_anything_array_like_becomes_bytes_of_the_asked_dtype(array: object) -> None:
    assert to_domain(array, DType.FLOAT32) == HALVES  # type: ignore[arg-type]  # one of each kind that it takes


def test_a_slice_that_wants_gradients_becomes_bytes_in_row_major_order() -> None:
    columns = torch.tensor([[1.5, 0.0], [2.0, 0.0]], requires_grad=True)[:, :1]
    assert to_domain(columns.reshape(2), DType.FLOAT32) == HALVES


def test_bytes_become_tensors_of_their_own_memory() -> None:
    ids = from_domain(IDS)
    assert ids.dtype is torch.int64 and ids.tolist() == [[7], [-1]]
    ids += 1
    assert from_domain(IDS).tolist() == [[7], [-1]]


def test_arrays_of_no_elements_cross_both_ways() -> None:
    nothing = Tensor(dtype=DType.INT64, shape=(0, 3), data=b"")
    assert to_domain(from_domain(nothing), DType.INT64) == nothing


def test_arrays_of_several_dtypes_are_joined_flat() -> None:
    assert joined([HALVES, IDS, HALVES], torch.float32).tolist() == [1.5, 2.0, 7.0, -1.0, 1.5, 2.0]
    assert joined([IDS, IDS], torch.int32).tolist() == [7, -1, 7, -1]
