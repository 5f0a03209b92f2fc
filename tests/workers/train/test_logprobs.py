"""Chunked log-probabilities and their written-out gradient against autograd over all logits at once."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.spans import LoraLayer, TrainingAdapter
from workers.train import logprobs
from workers.train.logprobs import HeadPart, target_logprobs

M, WIDTH, RANK = 13, 32, 3


def adapters(base: BaseModel) -> list[tuple[HeadPart, TrainingAdapter]]:
    generator = torch.Generator().manual_seed(5)

    def adapter(start: int, stop: int, rank: int) -> tuple[HeadPart, TrainingAdapter]:
        shape = LoraShape.of(base.layout, LoraSpec(rank=rank, train_attn=False, train_mlp=False))
        made = TrainingAdapter(shape, torch.randn(shape.size, generator=generator) * 0.1, train=True)
        return HeadPart(start, stop, LoraLayer("lm_head", [made])), made

    return [adapter(0, 5, RANK), adapter(7, M, RANK + 1)]  # tokens 5 and 6 have none


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize(
    "owners", [None, torch.tensor([*range(M), 0, 4, 4, 5, 12]).sort().values], ids=["own", "shared"]
)
def test_chunks_equal_the_full_computation(
    make_module: Callable[[str], PreTrainedModel],
    family: str,
    monkeypatch: pytest.MonkeyPatch,
    chunk: int,
    choices: int,
    owners: Tensor | None,
) -> None:
    base = BaseModel(make_module(family), "tiny")
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", chunk * base.vocab_size)
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(M, WIDTH, generator=generator)
    count = M if owners is None else len(owners)
    targets = torch.randint(0, base.vocab_size, (count, choices), generator=generator)
    slopes = torch.randn(count, choices, generator=generator)
    mine = adapters(base)
    heads = [head for head, _ in mine]

    found, back = target_logprobs(base, hidden, targets, heads, lambda lp, at: slopes[at : at + len(lp)], owners)

    wanted, leaves = full(base, hidden, targets, mine, owners)
    grads = torch.autograd.grad((wanted * slopes).sum(), leaves)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(back, grads[0], rtol=1e-4, atol=1e-5)
    for (_, adapter), wanted_pair in zip(mine, zip(grads[1::2], grads[2::2], strict=True), strict=True):
        for part, each in zip(adapter.grad_parts["lm_head"], wanted_pair, strict=True):
            torch.testing.assert_close(part.view(each.shape), each, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(target_logprobs(base, hidden, targets, heads, owners=owners)[0], wanted)


def full(
    base: BaseModel,
    hidden: Tensor,
    targets: Tensor,
    mine: list[tuple[HeadPart, TrainingAdapter]],
    owners: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    leaves = [hidden.clone().requires_grad_()]
    logits = leaves[0] @ base.unembed.weight.T
    for head, adapter in mine:
        rank = adapter.shape.rank
        flat_a, flat_b = adapter.weight_parts["lm_head"]
        a, b = flat_a.view(rank, -1).clone().requires_grad_(), flat_b.view(-1, rank).clone().requires_grad_()
        leaves += [a, b]
        inside = torch.zeros(M, 1)
        inside[head.start : head.stop] = 1
        logits = logits + inside * adapter.shape.scale * (leaves[0] @ a.T @ b.T)
    if base.softcap is not None:
        logits = torch.tanh(logits / base.softcap) * base.softcap
    each = logits.log_softmax(1)
    return (each if owners is None else each[owners]).gather(1, targets), leaves


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
