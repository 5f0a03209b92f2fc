import pytest
import torch
from safetensors.torch import load

from workers.model.flat_file import pack, unpack


def test_safetensors_reads_what_is_packed() -> None:
    first, second = torch.arange(10.0), torch.arange(10.0, 16.0)
    data = bytes(pack([("b", (2, 3)), ("a", (4,)), ("c", (3, 2))], [first, second], {"format": "pt"}))
    found = load(data)
    assert torch.equal(found["b"], torch.arange(6.0).view(2, 3))
    assert torch.equal(found["a"], torch.arange(6.0, 10.0))
    assert torch.equal(found["c"], second.view(3, 2))


def test_unpacking_gives_copies_and_the_metadata() -> None:
    vectors = [torch.randn(5), torch.randn(7)]
    data = bytes(pack([("m", (5,)), ("v", (7,))], vectors, {"step": "3"}))
    found, metadata = unpack(data)
    assert metadata == {"step": "3"}
    assert torch.equal(found["m"], vectors[0]) and torch.equal(found["v"], vectors[1])
    found["m"].add_(1.0)
    assert torch.equal(unpack(data)[0]["m"], vectors[0])


def test_numbers_begin_at_a_multiple_of_eight_bytes() -> None:
    for length in range(1, 9):
        data = pack([("x" * length, (1,))], [torch.zeros(1)], {})
        assert (len(data) - 4) % 8 == 0


@pytest.mark.parametrize("data", [b"", b"12345678", b"\x02\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]", bytes(100)])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(data)


def test_a_file_cut_short_is_refused() -> None:
    data = bytes(pack([("m", (5,))], [torch.zeros(5)], {}))
    with pytest.raises(ValueError):
        unpack(data[:-1])
