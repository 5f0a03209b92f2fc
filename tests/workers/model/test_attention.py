from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from workers.model import attention


class Causal:
    is_causal = True
    num_key_value_groups = 2


@pytest.mark.parametrize("length", [2, 17, 64])
@pytest.mark.parametrize("scores", [2**21, 100], ids=["whole", "in blocks"])
def test_the_gradient_is_attentions_own(length: int, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SCORES", scores)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 4, length, 8, generator=generator).bfloat16()
    k, v = (torch.randn(3, 2, length, 8, generator=generator).bfloat16() for _ in range(2))
    slope = torch.randn(3, length, 4, 8, generator=generator).bfloat16()
    mine = [each.clone().requires_grad_() for each in (q, k, v)]
    out, _ = attention.attend(Causal(), *mine, None, scaling=0.3)
    assert out.grad_fn is not None
    transposed = out.grad_fn.next_functions[0][0]
    assert transposed is not None and "Attention" in repr(transposed.next_functions)
    exact = [each.float().requires_grad_() for each in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*exact, is_causal=True, scale=0.3, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(out.float(), wanted, rtol=0.02, atol=0.02)
    found = torch.autograd.grad(out, mine, slope)
    for one, other in zip(found, torch.autograd.grad(wanted, exact, slope.float()), strict=True):
        assert float((one.float() - other).norm() / other.norm()) < 0.01


@pytest.mark.parametrize("reason", ["float32", "a mask", "no gradient", "one token on a cache", "long rows"])
def test_pytorchs_gradient_stays_where_ours_gains_nothing(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LONGEST", 5 if reason == "long rows" else 512)

    def refuse(*_: object) -> None:
        raise AssertionError("ours was used")

    monkeypatch.setattr(attention._Attention, "apply", refuse)
    dtype = torch.float32 if reason == "float32" else torch.bfloat16
    q = torch.randn(1, 4, 1 if reason == "one token on a cache" else 6, 8, dtype=dtype).requires_grad_()
    k = torch.randn(1, 2, 6, 8, dtype=dtype)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril() if reason == "a mask" else None
    with torch.set_grad_enabled(reason != "no gradient"):
        out, _ = attention.attend(Causal(), q, k, k, mask)
    assert out.shape == (1, q.shape[2], 4, 8)


@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_one_new_token_attends_as_transformers_has_it(heads: int, scaling: float | None) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, heads, 1, 8), torch.randn(3, 2, 5, 8), torch.randn(3, 2, 5, 8)
    mask = torch.zeros(3, 1, 1, 5).masked_fill_(
        torch.arange(5) > torch.tensor([1, 4, 2])[:, None, None, None], -torch.inf
    )
    module = SimpleNamespace(num_key_value_groups=heads // 2, is_causal=True)
    ours, _ = attention.attend(module, query, key, value, mask, scaling=scaling)
    theirs, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=scaling)
    torch.testing.assert_close(ours, theirs)
