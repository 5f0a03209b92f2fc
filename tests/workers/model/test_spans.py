"""Adapters by spans of rows against each adapter alone, through autograd over the same layers written plainly."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.spans import Span, SpanMix, TrainingAdapter

LENGTH = 5
SPECS = {
    "all": LoraSpec(rank=4),
    "other": LoraSpec(rank=4, train_mlp=False),
    "attn": LoraSpec(rank=2, train_mlp=False, train_unembed=False),
}
#: Adapters (by spec) with their rows; the batch has two more rows than these that belong to none.
CASES: dict[str, list[tuple[str, int]]] = {
    "one": [("all", 3)],
    "twins with as many rows": [("all", 2), ("all", 2), ("all", 2)],
    "twins with different rows": [("all", 1), ("all", 3), ("all", 2)],
    "different shapes": [("all", 2), ("attn", 1), ("attn", 1), ("other", 2)],
}


def adapters(base: BaseModel, case: Sequence[tuple[str, int]], *, train: bool) -> list[TrainingAdapter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [LoraShape.of(base.layout, SPECS[name]) for name, _ in case]
    return [TrainingAdapter(shape, torch.randn(shape.size, generator=generator) * 0.1, train=train) for shape in shapes]


def spans(case: Sequence[tuple[str, int]], made: Sequence[TrainingAdapter]) -> list[Span]:
    found, start = [], 0
    for (_, rows), adapter in zip(case, made, strict=True):
        found.append(Span(start, start + rows, adapter))
        start += rows
    return found


def tokens(case: Sequence[tuple[str, int]]) -> Tensor:
    rows = sum(count for _, count in case) + 2
    return torch.randint(0, 97, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


def run(base: BaseModel, ids: Tensor, *of: Span) -> Tensor:
    with base.mixed(SpanMix(of)):
        return base.head(base.hidden(ids))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("train", [True, False])
def test_rows_and_gradients_are_those_of_each_adapter_alone(
    base: BaseModel, case: list[tuple[str, int]], train: bool
) -> None:
    together = adapters(base, case, train=train)
    with torch.set_grad_enabled(train):
        whole = run(base, tokens(case), *spans(case, together))
    with torch.no_grad():
        torch.testing.assert_close(whole[-2:], run(base, tokens(case)[-2:]), rtol=1e-5, atol=1e-5)
    if train:
        whole.square().sum().backward()
    alone = adapters(base, case, train=True)
    for span, mine, other in zip(spans(case, alone), together, alone, strict=True):
        part = run(base, tokens(case)[span.start : span.stop], Span(0, span.stop - span.start, other))
        torch.testing.assert_close(whole[span.start : span.stop], part, rtol=1e-5, atol=1e-5)
        part.square().sum().backward()
        assert other.grad is not None
        if train:
            assert mine.grad is not None
            torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-5 * float(other.grad.abs().max()))


@pytest.mark.parametrize("adapted", [1, 3], ids=["single", "batched"])
@pytest.mark.parametrize("first", [True, False], ids=["input wants no gradient", "input wants one"])
def test_one_layer_equals_autograd_over_the_plain_formula(base: BaseModel, adapted: int, first: bool) -> None:
    name, case = "model.layers.0.self_attn.q_proj", [("all", 2)] * adapted
    made = adapters(base, case, train=True)
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2 * adapted, LENGTH, 32, generator=generator, requires_grad=not first)
    weight, bias = torch.randn(32, 32, generator=generator), torch.randn(32, generator=generator)
    slope = torch.randn(2 * adapted, LENGTH, 32, generator=generator)
    y = SpanMix(spans(case, made)).linear(name, x, weight, bias)
    y.backward(slope)
    plain = x.detach().clone().requires_grad_()
    leaves = [[w.clone().requires_grad_() for w in adapter.weight_parts[name]] for adapter in made]
    rows = [
        F.linear(block, weight, bias) + 8.0 * (block @ a.view(4, 32).T @ b.view(32, 4).T)
        for block, (a, b) in zip(plain.split(2), leaves, strict=True)
    ]
    torch.testing.assert_close(y, torch.cat(rows), rtol=1e-5, atol=1e-4)
    torch.cat(rows).backward(slope)
    if not first:
        torch.testing.assert_close(x.grad, plain.grad, rtol=1e-5, atol=1e-4)
    for adapter, pair in zip(made, leaves, strict=True):
        for found, wanted in zip(adapter.grad_parts[name], pair, strict=True):
            torch.testing.assert_close(found, wanted.grad, rtol=1e-5, atol=1e-3)


def test_a_second_backward_adds(base: BaseModel) -> None:
    case = CASES["different shapes"]
    made = adapters(base, case, train=True)
    once: list[Tensor] = []
    for _ in range(2):
        run(base, tokens(case), *spans(case, made)).square().sum().backward()
        once = once or [adapter.grad.clone() for adapter in made if adapter.grad is not None]
    for adapter, grad in zip(made, once, strict=True):
        torch.testing.assert_close(adapter.grad, 2 * grad)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_not_a_number_in_a_row_stays_with_its_adapter(base: BaseModel, case: list[tuple[str, int]]) -> None:
    made = adapters(base, case, train=True)
    out = run(base, tokens(case), *spans(case, made))
    slope = torch.ones_like(out)
    slope[0, 2] = torch.nan
    out.backward(slope)
    finite = [bool(adapter.grad.isfinite().all()) for adapter in made if adapter.grad is not None]
    assert finite == [False] + [True] * (len(case) - 1)


@pytest.mark.parametrize("few", [0, 1000], ids=["in bfloat16", "in float32"])
def test_bfloat16_bases_keep_float32_gradients_near_the_exact_ones(
    make_module: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("workers.model.spans.FEW_TOKENS", few)
    case, grads = CASES["twins with as many rows"], []
    for dtype in (torch.float32, torch.bfloat16):
        base = BaseModel(make_module("llama").to(dtype), "tiny")
        made = adapters(base, case, train=True)
        run(base, tokens(case), *spans(case, made)).float().square().sum().backward()
        grads.append(torch.stack([adapter.grad for adapter in made if adapter.grad is not None]))
    assert grads[1].dtype is torch.float32
    assert float((grads[0] - grads[1]).norm() / grads[0].norm()) < 0.05
