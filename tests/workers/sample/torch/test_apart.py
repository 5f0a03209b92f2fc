import pytest
import torch

from workers.model.alike import Alike
from workers.sample.torch.apart import ApartPart


@pytest.fixture
def adapters(lab):
    base = lab.base()
    wanted = [(0, 4, ""), (1, 4, ""), (2, 2, "mlp"), (3, 6, "q_proj")]
    return [lab.adapter(base, seed, rank, part) for seed, rank, part in wanted]


def add(adapters, index, name, x, y):
    return ApartPart(adapters, index, Alike()).add(name, x, y.clone())


def test_a_row_gets_the_bits_that_it_gets_alone(lab, adapters):
    index = [0, 1, -1, 2, 3, 0, *[1] * 20, 2]
    for target in lab.base().layout.targets:
        x = torch.randn(len(index), 1, target.in_features).bfloat16()
        y = torch.randn(len(index), 1, target.out_features).bfloat16()
        together = add(adapters, index, target.name, x, y)
        for row, member in enumerate(index):
            alone = add(adapters, [member], target.name, x[row : row + 1], y[row : row + 1])
            assert torch.equal(alone[0], together[row])


def test_it_is_what_the_adapter_adds(lab, adapters):
    index = [1, 0, -1, 3]
    target = next(target for target in lab.base().layout.targets if "q_proj" in target.name)
    x, y = torch.randn(4, 1, target.in_features), torch.randn(4, 1, target.out_features)
    expected = y.clone()
    for row, member in enumerate(index):
        if member >= 0:
            shape, flat = adapters[member]
            a, b = shape.parts(target.name)
            expected[row] += shape.scale * (x[row] @ flat[a].view(shape.rank, -1).T) @ flat[b].view(-1, shape.rank).T
    assert torch.allclose(add(adapters, index, target.name, x, y), expected, atol=1e-5)
