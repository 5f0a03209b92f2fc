"""Chunked log-probabilities and their written-out gradient against autograd over all logits at once."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from workers.model.base import BaseModel
from workers.train import logprobs
from workers.train.logprobs import HeadAdapter, target_logprobs

M, WIDTH, RANK = 13, 32, 3


def adapters(base: BaseModel) -> list[HeadAdapter]:
    generator = torch.Generator().manual_seed(5)

    def adapter(start: int, stop: int, rank: int) -> HeadAdapter:
        a = torch.randn(rank, WIDTH, generator=generator) * 0.1
        b = torch.randn(base.vocab_size, rank, generator=generator) * 0.1
        return HeadAdapter(start, stop, a, b, 32 / rank, torch.zeros_like(a), torch.zeros_like(b))

    return [adapter(0, 5, RANK), adapter(7, M, RANK + 1)]  # tokens 5 and 6 have none


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("choices", [1, 3])
def test_chunks_equal_the_full_computation(
    make_module: Callable[[str], PreTrainedModel],
    family: str,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    choices: int,
) -> None:
    base = BaseModel(make_module(family), "tiny")
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", chunk * base.vocab_size)
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(M, WIDTH, generator=generator)
    targets = torch.randint(0, base.vocab_size, (M, choices), generator=generator)
    slopes = torch.randn(M, choices, generator=generator)
    mine = adapters(base)

    found, back = target_logprobs(base, hidden, targets, mine, lambda lp, at: slopes[at : at + len(lp)])

    wanted, leaves = full(base, hidden, targets, mine)
    grads = torch.autograd.grad((wanted * slopes).sum(), leaves)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(back, grads[0], rtol=1e-4, atol=1e-5)
    for adapter, (a, b) in zip(mine, zip(grads[1::2], grads[2::2], strict=True), strict=True):
        torch.testing.assert_close(adapter.a_grad, a, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(adapter.b_grad, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(target_logprobs(base, hidden, targets, mine)[0], wanted)


def full(base: BaseModel, hidden: Tensor, targets: Tensor, mine: list[HeadAdapter]) -> tuple[Tensor, list[Tensor]]:
    leaves = [hidden.clone().requires_grad_()]
    logits = leaves[0] @ base.unembed.weight.T
    for adapter in mine:
        a, b = adapter.a.clone().requires_grad_(), adapter.b.clone().requires_grad_()
        leaves += [a, b]
        inside = torch.zeros(M, 1)
        inside[adapter.start : adapter.stop] = 1
        logits = logits + inside * adapter.scale * (leaves[0] @ a.T @ b.T)
    if base.softcap is not None:
        logits = torch.tanh(logits / base.softcap) * base.softcap
    return logits.log_softmax(1).gather(1, targets), leaves


def test_no_tensor_over_all_tokens_and_the_vocabulary_is_made(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", 8 * base.vocab_size)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def] # torch's own
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max(largest, *(each.numel() for each in [out] if isinstance(each, Tensor)), 0)
            return out

    hidden, targets = torch.randn(512, WIDTH), torch.zeros(512, 1, dtype=torch.long)
    with Watch():
        target_logprobs(base, hidden, targets, (), lambda lp, at: torch.ones_like(lp))
    assert largest <= 512 * WIDTH < 512 * base.vocab_size
