import pytest
import torch

from workers.sample.torch import joined
from workers.sample.torch.joined import Joined, JoinedPart


def one_by_one(adapters, index, name, x, y):
    """Reference: each row with its own adapter."""
    rows = []
    for row, member in enumerate(index):
        part = y[row : row + 1].clone()
        if member >= 0 and name in adapters[member][0].names:
            shape, flat = adapters[member]
            a, b = (flat[at] for at in shape.parts(name))
            part += shape.scale * (x[row : row + 1] @ a.view(shape.rank, -1).T) @ b.view(-1, shape.rank).T
        rows.append(part)
    return torch.cat(rows)


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("index", [[0, 0, 0], [0, 1, 2, 3, -1, 0], [-1, 2, 2], [3, 3]])
def test_rows_get_what_their_own_adapter_adds(lab, index, tokens):
    base = lab.base()
    adapters = [
        lab.adapter(base, seed, rank, part)
        for seed, rank, part in [(0, 4, ""), (1, 4, ""), (2, 2, "mlp"), (3, 6, "q_proj")]
    ]
    part = JoinedPart(Joined(adapters), index)
    with torch.inference_mode():
        for target in base.layout.targets:
            x = torch.randn(len(index), tokens, target.in_features)
            y = torch.randn(len(index), tokens, target.out_features)
            expected = one_by_one(adapters, index, target.name, x, y)
            assert torch.allclose(part.add(target.name, x, y.clone()), expected, atol=1e-5)


def test_a_batch_in_bfloat16_takes_adapters_in_float32(lab):
    base = lab.base()
    shape, flat = lab.adapter(base, 0)
    target = base.layout.targets[0]
    x, y = torch.randn(3, 1, target.in_features).bfloat16(), torch.randn(3, 1, target.out_features).bfloat16()
    added = JoinedPart(Joined([(shape, flat)]), [0, -1, 0]).add(target.name, x, y.clone())
    assert added.dtype == torch.bfloat16
    assert torch.equal(added[1], y[1])
    assert not torch.equal(added[0], y[0])


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("small", [0, joined.SMALL])
def test_products_in_bfloat16_and_float32_add_the_same(lab, monkeypatch, small, pack):
    monkeypatch.setattr(joined, "SMALL", small)
    base, index = lab.base(), [0, 1, -1, 1]
    adapters = [lab.adapter(base, seed, rank) for seed, rank in [(0, 4), (1, 6)]]
    part = JoinedPart(Joined(adapters, pack=pack), index)
    with torch.inference_mode():
        for target in base.layout.targets:
            x = torch.randn(len(index), 1, target.in_features).bfloat16()
            y = torch.randn(len(index), 1, target.out_features).bfloat16()
            expected = one_by_one(adapters, index, target.name, x.float(), y.float())
            added = part.add(target.name, x, y.clone())
            assert added.dtype == torch.bfloat16
            assert torch.allclose(added.float(), expected, atol=0.05, rtol=0.02)
            assert torch.equal(added[2], y[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("small", [0, joined.SMALL])
def test_an_adapter_that_runs_over_spoils_no_other_row(lab, monkeypatch, small, dtype):
    monkeypatch.setattr(joined, "SMALL", small)
    base = lab.base()
    shape, flat = lab.adapter(base, 0)
    target = base.layout.targets[0]
    x = torch.full((2, 1, target.in_features), 9.0, dtype=dtype)
    y = torch.zeros(2, 1, target.out_features, dtype=dtype)
    added = JoinedPart(Joined([(shape, flat), (shape, torch.full_like(flat, 3.4e38))]), [0, 1]).add(target.name, x, y)
    assert torch.isfinite(added[0]).all() and not torch.isfinite(added[1]).any()


def test_a_layer_that_no_adapter_changes_is_left_alone(lab):
    base = lab.base()
    part = JoinedPart(Joined([lab.adapter(base, 0, part="mlp")]), [0])
    y = torch.randn(1, 1, 32)
    assert part.add("model.layers.0.self_attn.q_proj", y, y) is y
