from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from workers.model.base import BaseModel
from workers.model.packed import PackedWeight, packs

Make = Callable[[str], PreTrainedModel]

gains = pytest.mark.skipif(not packs(torch.zeros(1, 1, dtype=torch.bfloat16)), reason="no bfloat16 products here")


@gains
@pytest.mark.parametrize("shape", [(1, 64), (5, 64), (3, 1, 64), (2, 7, 64)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_packed_weight_gives_the_same_product(shape: tuple[int, ...], biased: bool) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(48, 64).bfloat16(), torch.randn(48).bfloat16() if biased else None
    x = torch.randn(shape).bfloat16()
    made = PackedWeight(nn.Parameter(weight)).linear(x, bias)
    assert made.shape == (*shape[:-1], 48)
    torch.testing.assert_close(made, F.linear(x, weight, bias))


@gains
def test_a_packed_product_is_added_to_what_is_there() -> None:
    torch.manual_seed(0)
    weight, x, y = torch.randn(48, 64).bfloat16(), torch.randn(5, 64).bfloat16(), torch.randn(5, 48).bfloat16()
    before = y.clone()
    made = PackedWeight(weight).plus(x, y)
    torch.testing.assert_close(made, torch.addmm(before, x, weight.t()))


def test_full_precision_and_other_devices_gain_nothing() -> None:
    assert not packs(torch.zeros(1, 1))
    assert not packs(torch.zeros(1, 1, dtype=torch.bfloat16, device="meta"))


@gains
def test_a_packed_model_computes_the_same(make_module: Make, family: str) -> None:
    base = BaseModel(make_module(family).to(torch.bfloat16), "tiny")
    ids = torch.arange(18).view(2, 9)
    with torch.no_grad():
        plain = base.head(base.hidden(ids))
        assert base.pack(most_bytes=10) == 0 and base.unembed.packed is None
        assert base.pack(most_bytes=10**9) == sum(
            2 * each.in_features * each.out_features for each in base.layout.targets
        )
        assert base.unembed.packed is not None
        torch.testing.assert_close(base.head(base.hidden(ids)), plain, atol=0.05, rtol=0.05)


@gains
def test_a_copy_of_a_packed_model_computes_with_what_is_written_to_it(make_module: Make, family: str) -> None:
    base = BaseModel(make_module(family).to(torch.bfloat16), "tiny")
    base.pack(most_bytes=10**9)
    ids = torch.arange(18).view(2, 9)
    with torch.no_grad():
        plain = base.head(base.hidden(ids))
        copied = base.copied()
        for each in copied.module.parameters():
            each.mul_(1.5)
        written = copied.head(copied.hidden(ids))
        assert base.unembed.packed is not None and torch.equal(base.head(base.hidden(ids)), plain)
        fresh = BaseModel(make_module(family).to(torch.bfloat16), "tiny")
        for each in fresh.module.parameters():
            each.mul_(1.5)
        assert torch.equal(written, fresh.head(fresh.hidden(ids)))
