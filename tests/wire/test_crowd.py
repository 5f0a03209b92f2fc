import pytest
from hypothesis import given
from hypothesis import strategies as st

from openrl.domain.errors import FieldInvalid
from openrl.wire import tinker_pb2 as pb
from openrl.wire.batch import MOST_PARTS, read_request
from openrl.wire.crowd import crowded

DATA = 3


def _request(datums: int, chunks: int) -> bytes:
    request = pb.ForwardBackwardRequest(model_id="m", seq_id=300, loss_fn="ppo", loss_fn_config={"beta": 1.0})
    for _ in range(datums):
        datum = request.data.add()
        for _ in range(chunks):
            datum.model_input.add().encoded_text.tokens = bytes(400)
    return request.SerializeToString()


@pytest.mark.parametrize(("datums", "chunks"), [(0, 0), (1, 3), (5, 2)])
def test_datums_and_what_is_in_them_are_counted(datums: int, chunks: int) -> None:
    body, parts = _request(datums, chunks), 4 + datums * (1 + chunks)
    assert not crowded(body, DATA, parts)
    assert crowded(body, DATA, parts - 1)


def test_a_body_of_empty_parts_is_refused_before_it_is_parsed() -> None:
    for many in (b"\x1a\x00" * (MOST_PARTS + 1), b"\x1a\x80\x80\x40" + b"\x0a\x00" * (1 << 19)):
        with pytest.raises(FieldInvalid, match=r"^data: has more than 200000 datums"):
            read_request(many)


@given(st.binary(max_size=200))
def test_any_bytes_are_counted_without_a_complaint(body: bytes) -> None:
    crowded(body, DATA, 1000)
