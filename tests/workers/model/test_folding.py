"""Folding against plain indexing, its gradients against autograd's, and attention against separate rows."""

import pytest
import torch
from torch.nn import functional as F

from workers.model import prefixes
from workers.model.attention import attend
from workers.model.folding import Folding
from workers.model.prefixes import layout

PROMPT = bytes(range(10))
GROUPS = [
    sorted([PROMPT, PROMPT + bytes([50, 51]), PROMPT + bytes([60] * 9), PROMPT + bytes([60] * 9 + [7, 8])]),
    [bytes([1, 2, 3])],
]


@pytest.fixture(params=[0, 10**9], ids=["in bands", "whole"])
def folding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Folding:
    monkeypatch.setattr(prefixes, "PRODUCT", request.param)
    return Folding(layout(GROUPS, item=1))


def where(folding: Folding) -> tuple[torch.Tensor, torch.Tensor]:
    """Token numbers [R, L] and where rows have tokens at all."""
    lengths = torch.tensor([len(row) for group in GROUPS for row in group])
    return folding.grid.spread(torch.arange(folding.grid.tokens)), torch.arange(folding.grid.columns) < lengths[:, None]


def test_rows_hold_their_own_tokens_and_zeros_after_them(folding: Folding) -> None:
    number, inside = where(folding)
    values = torch.randn(folding.grid.tokens, 3)
    rows = folding.grid.spread(values)
    assert torch.equal(rows, values[number] * inside[:, :, None])
    assert torch.equal(folding.grid.first(rows), values)


def test_summed_and_placed_are_the_adjoints(folding: Folding) -> None:
    grid = folding.grid
    tokens, rows = torch.randn(grid.tokens).double(), torch.randn(grid.rows, grid.columns).double()
    torch.testing.assert_close((grid.spread(tokens) * rows).sum(), (tokens * grid.summed(rows)).sum())
    torch.testing.assert_close((grid.first(rows) * tokens).sum(), (rows * grid.placed(tokens)).sum())


def test_every_token_asks_in_one_band(folding: Folding) -> None:
    tokens = torch.arange(folding.grid.tokens)
    parts = torch.split(tokens, [each.tokens for each in folding.queries])
    out = [each.out(each.rows(part)) for each, part in zip(folding.queries, parts, strict=True)]
    assert torch.equal(torch.cat(out), tokens)


class Causal:
    is_causal = True
    num_key_value_groups = 2


@pytest.mark.parametrize("window", [None, 4, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_on_folded_tokens_is_attention_on_rows(
    folding: Folding, window: int | None, dtype: torch.dtype
) -> None:
    number, _ = where(folding)
    q, k, v = (torch.randn(folding.grid.tokens, heads, 1, 8).to(dtype).requires_grad_() for heads in (4, 2, 2))
    found, _ = attend(Causal(), q, k, v, None, folding=folding, sliding_window=window)
    assert found.shape == (folding.grid.tokens, 1, 4, 8)
    rows = [each[number, :, 0].float().transpose(1, 2) for each in (q, k, v)]
    distance = torch.arange(folding.grid.columns)[:, None] - torch.arange(folding.grid.columns)
    mask = (distance >= 0) & (distance < (window or 1000))
    whole = F.scaled_dot_product_attention(*rows, attn_mask=mask, enable_gqa=True).transpose(1, 2)
    wanted = folding.grid.first(whole)
    rough = 1e-5 if dtype is torch.float32 else 0.03
    torch.testing.assert_close(found[:, 0].float(), wanted, rtol=rough, atol=rough)
    slope = torch.randn(wanted.shape)
    for one, other in zip(
        torch.autograd.grad(found[:, 0], (q, k, v), slope.to(dtype)),
        torch.autograd.grad(wanted, (q, k, v), slope),
        strict=True,
    ):
        assert float((one - other).float().norm() / other.float().norm()) < rough
