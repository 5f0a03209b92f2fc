import pytest
import torch
from torch import Tensor

from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.lora import AdapterStack, Mix
from workers.sample.torch.joined import Joined, JoinedPart

ROWS, LENGTH = 6, 7


@pytest.fixture
def shape(base: BaseModel) -> LoraShape:
    return LoraShape.of(base.layout, LoraSpec(rank=4))


def adapters(shape: LoraShape, count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape.size, generator=generator) * 0.1 for _ in range(count)]


def tokens(rows: int = ROWS) -> Tensor:
    return torch.randint(0, 97, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


def logits(base: BaseModel, ids: Tensor, *parts: JoinedPart) -> Tensor:
    with torch.no_grad(), base.mixed(Mix(parts)):
        return base.head(base.hidden(ids))


def alone(base: BaseModel, shape: LoraShape, adapter: Tensor, ids: Tensor) -> Tensor:
    return logits(base, ids, JoinedPart(Joined([(shape, adapter)]), [0] * len(ids)))


INDICES = {
    "all rows one adapter": [1, 1, 1, 1, 1, 1],
    "some of the adapters": [0, 0, 0, 2, 2, 2],
    "no order": [2, 0, 1, 2, 0, 2],
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_each_row_computes_as_if_alone(base: BaseModel, shape: LoraShape, index: list[int]) -> None:
    weights = adapters(shape, 3)
    mixed = logits(base, tokens(), JoinedPart(Joined([(shape, each) for each in weights]), index))
    for row, entry in enumerate(index):
        one = alone(base, shape, weights[entry], tokens()[row : row + 1])[0]
        torch.testing.assert_close(mixed[row], one, rtol=1e-5, atol=1e-5)


def test_parts_of_different_shapes_mix_and_rows_in_none_use_the_base_alone(base: BaseModel) -> None:
    small = LoraShape.of(base.layout, LoraSpec(rank=2, train_mlp=False, train_unembed=False))
    large = LoraShape.of(base.layout, LoraSpec(rank=8, train_attn=False))
    one, two = adapters(small, 2), adapters(large, 1)
    mixed = logits(
        base,
        tokens(),
        JoinedPart(Joined([(small, each) for each in one]), [-1, 1, 1, -1, -1, 0]),
        JoinedPart(Joined([(large, two[0])]), [0, -1, -1, 0, -1, -1]),
    )
    wanted = {5: (small, one[0]), 1: (small, one[1]), 2: (small, one[1]), 0: (large, two[0]), 3: (large, two[0])}
    plain = logits(base, tokens())
    for row in range(ROWS):
        ids = tokens()[row : row + 1]
        expected = alone(base, *wanted[row], ids)[0] if row in wanted else plain[row]
        torch.testing.assert_close(mixed[row], expected, rtol=1e-5, atol=1e-5)


def test_decoding_takes_one_hidden_state_per_row(base: BaseModel, shape: LoraShape) -> None:
    part = JoinedPart(Joined([(shape, each) for each in adapters(shape, 3)]), [2, 0, 1, 2, 0, 2])
    with torch.no_grad(), base.mixed(Mix((part,))):
        hidden = base.hidden(tokens())
        torch.testing.assert_close(base.head(hidden[:, -1]), base.head(hidden)[:, -1])


def test_views_are_laid_out_as_the_shape_says(base: BaseModel, shape: LoraShape) -> None:
    data = torch.stack(adapters(shape, 2))
    stack = AdapterStack(shape, data)
    name = "model.layers.1.mlp.down_proj"
    at_a, at_b = shape.parts(name)
    a, b = stack.a(name), stack.b(name)
    assert a is not None and b is not None and a.shape == (2, 4, 48) and b.shape == (2, 32, 4)
    assert torch.equal(a[1].flatten(), data[1, at_a]) and torch.equal(b[0].flatten(), data[0, at_b])
    assert stack.a("model.norm") is None


def test_the_mix_is_put_back_after_an_error(base: BaseModel, shape: LoraShape) -> None:
    plain = logits(base, tokens())
    part = JoinedPart(Joined([(shape, adapters(shape, 1)[0])]), [0] * ROWS)
    with pytest.raises(ZeroDivisionError), base.mixed(Mix((part,))):
        raise ZeroDivisionError
    assert torch.equal(logits(base, tokens()), plain)
