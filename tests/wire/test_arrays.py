import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrl.domain.errors import FieldInvalid
from openrl.domain.tensor import DType
from openrl.wire import tinker_pb2 as pb
from openrl.wire.arrays import Allowance, array_of, read_tensor, read_tokens


def dense(array, dtype=pb.DTYPE_FLOAT32, shape=None):
    return pb.Tensor(dense=array.tobytes(), dtype=dtype, shape=array.shape if shape is None else shape)


def csr(values, rows, columns, shape, dtype=pb.DTYPE_FLOAT32):
    return pb.Tensor(
        sparse_csr=pb.SparseCsr(
            values=np.array(values, "<i8" if dtype == pb.DTYPE_INT64 else "<f4").tobytes(),
            crow_indices=np.array(rows, "<i8").tobytes(),
            col_indices=np.array(columns, "<i8").tobytes(),
        ),
        dtype=dtype,
        shape=shape,
    )


def test_dense_bytes_stay_as_they_are():
    sent = np.arange(6, dtype="<f4").reshape(2, 3)
    tensor = read_tensor(dense(sent), "x", Allowance(0))
    assert (tensor.dtype, tensor.shape, tensor.data) == (DType.FLOAT32, (2, 3), sent.tobytes())


def test_a_tensor_without_a_shape_is_flat():
    assert read_tensor(dense(np.zeros(3, "<f4"), shape=()), "x", Allowance(0)).shape == (3,)


def test_bfloat16_is_widened():
    sent = np.array([1.5, -2.0], "<f4")
    halves = (sent.view("<u4") >> 16).astype("<u2")
    tensor = read_tensor(dense(halves, pb.DTYPE_BFLOAT16), "x", Allowance(0))
    assert tensor.dtype is DType.FLOAT32
    assert array_of(tensor).tolist() == [1.5, -2.0]


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_csr_and_dense_are_the_same_tensor(height, width, data):
    cells = st.lists(st.sampled_from([0, 0, 3, -7]), min_size=height * width, max_size=height * width)
    expected = np.array(data.draw(cells), "<i8").reshape(height, width)
    rows, columns = np.nonzero(expected)
    message = csr(
        expected[rows, columns], np.searchsorted(rows, range(height + 1)), columns, (height, width), pb.DTYPE_INT64
    )
    assert array_of(read_tensor(message, "x", Allowance(1000))).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (pb.Tensor(dense=b"12345678"), "x.dtype: 0 is not a dtype"),
        (pb.Tensor(dense=b"12345", dtype=pb.DTYPE_FLOAT32), "x: 5 bytes are no whole number of 4-byte values"),
        (dense(np.zeros(4, "<f4"), shape=(5,)), r"x.shape: is \[5\] but 4 values were sent"),
        (dense(np.zeros(4, "<f4"), shape=(-2, -2)), r"x.shape: is \[-2, -2\]"),
        (dense(np.zeros(4, "<f4"), shape=(2**40, 2**40)), "x.shape: is "),
        (csr([1.0], [0, 1], [0], (1,)), r"x.shape: is \[1\]; a sparse tensor has rows and columns"),
        (csr([1.0], [0, 1], [0], (1, 2**40)), "x: takes .* bytes when made dense"),
        (csr([1.0], [0, 2], [0], (1, 2)), "x.sparse_crow_indices: must rise from 0 to 1 in 1 steps"),
        (csr([1.0], [1, 0, 1], [0], (2, 2)), "x.sparse_crow_indices"),
        (csr([1.0], [], [0], (0, 2)), "x.sparse_crow_indices: is empty"),
        (csr([1.0], [0, 1], [0, 1], (1, 2)), "x.sparse_col_indices: has 2 entries for 1 values"),
        (csr([1.0], [0, 1], [2], (1, 2)), r"x.sparse_col_indices: must lie in 0\.\.1"),
        (csr([1.0], [0, 1], [-1], (1, 2)), r"x.sparse_col_indices: must lie in 0\.\.1"),
    ],
)
def test_what_does_not_fit_together_is_refused(message, problem):
    with pytest.raises(FieldInvalid, match=problem):
        read_tensor(message, "x", Allowance(1000))


def test_sparse_tensors_share_their_room():
    allowance = Allowance(100)
    read_tensor(csr([1.0], [0, 1], [0], (1, 20)), "x", allowance)
    with pytest.raises(FieldInvalid, match="takes 80 bytes when made dense and 20 are left"):
        read_tensor(csr([1.0], [0, 1], [0], (1, 20)), "x", allowance)


def test_text_chunks_are_joined():
    tokens = read_tokens([np.array([1, 2], "<i4").tobytes(), b"", np.array([3], "<i4").tobytes()], "x")
    assert array_of(tokens).tolist() == [1, 2, 3]
    with pytest.raises(FieldInvalid, match="x: 3 bytes are no whole number of int32 tokens"):
        read_tokens([b"123"], "x")
