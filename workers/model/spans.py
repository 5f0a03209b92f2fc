"""Adapters in training: which rows of a pass belong to which adapter, each with room for its gradient.

Rows of one adapter stand together, so an adapter is applied to a slice and its weights are used where they lie. Ranks
and targets may differ from span to span; neighbours of one form with equally many rows are computed as one batch of
products. Gradients of A and B are written by hand straight into the adapters' flat gradients; autograd only sees a
layer's input and output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from workers.model.layout import LoraShape

#: Up to this many tokens an adapter is applied in float32: reading its weights costs more than computing with them.
FEW_TOKENS = 16


class TrainingAdapter:
    """An adapter's flat weights [size] and, unless it only runs forward, a flat gradient that passes add to."""

    def __init__(self, shape: LoraShape, weights: Tensor, *, train: bool) -> None:
        self.shape, self.train = shape, train
        self.grad = torch.zeros_like(weights) if train else None
        self.weight_parts = self._cut(weights.detach())
        self.grad_parts = {} if self.grad is None else self._cut(self.grad)

    def _cut(self, flat: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """A and B of each target, flat views."""
        sizes = [part.stop - part.start for name in self.shape.names for part in self.shape.parts(name)]
        pieces = torch.split(flat, sizes)
        return dict(zip(self.shape.names, zip(pieces[::2], pieces[1::2], strict=True), strict=True))


class LoraLayer:
    """One target in U adapters of one shape, each for n of U·n tokens."""

    def __init__(self, name: str, adapters: Sequence[TrainingAdapter]) -> None:
        self._name, self._adapters, self._shape = name, adapters, adapters[0].shape
        slices = self._shape.slices(name)
        assert slices is not None, "a layer is made only where its adapters have the target"
        self._target = slices.target

    def add_delta(self, x: Tensor, y: Tensor) -> Tensor:
        """y [U·n, out] += scale · B · A · x for x [U·n, in], in place. Returns A · x for `add_gradients`."""
        a, b, x = self._ready(x)
        inner = x @ a.mT
        _add(y.view(*x.shape[:-1], -1), inner, b.mT, self._shape.scale)
        return inner

    def add_gradients(self, x: Tensor, inner: Tensor, slope: Tensor, back: Tensor | None) -> None:
        """Backward of `add_delta`: from `slope` = d loss / d y adds to the gradients of A and B, and to that of x."""
        a, b, x = self._ready(x)
        slope = slope.view(*x.shape[:-1], -1).to(x.dtype)
        bottle = (slope @ b).mul_(self._shape.scale)
        self._gather(0, bottle.mT, x, 1.0)
        self._gather(1, slope.mT, inner, self._shape.scale)
        if back is not None:
            _add(back.view(x.shape), bottle, a)

    def _ready(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and x in the dtype to compute in, with the adapters in front if there are several."""
        count, rank = len(self._adapters), self._shape.rank
        few = len(x) <= FEW_TOKENS * count
        dtype = torch.float32 if few else x.dtype
        a, b = (self._weights(which).to(dtype) for which in (0, 1))
        a, b = a.view(count, rank, -1), b.view(count, -1, rank)
        if count == 1:
            return a[0], b[0], x.to(dtype)
        return a, b, x.view(count, -1, x.shape[1]).to(dtype)

    def _weights(self, which: int) -> Tensor:
        parts = [adapter.weight_parts[self._name][which] for adapter in self._adapters]
        return parts[0] if len(parts) == 1 else torch.stack(parts)

    def _gather(self, which: int, left: Tensor, right: Tensor, scale: float) -> None:
        """Adds scale · left · right to the adapters' gradients of A (0) or B (1)."""
        totals = [adapter.grad_parts[self._name][which] for adapter in self._adapters]
        if len(totals) == 1:
            _add(totals[0].view(left.shape[0], right.shape[1]), left, right, scale)
        else:  # one call for all adapters, as PyTorch's own optimizers do
            torch._foreach_add_(totals, [*(left @ right).float().flatten(1)], alpha=scale)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `stop` of a batch use `adapter`."""

    start: int
    stop: int
    adapter: TrainingAdapter


@dataclass(frozen=True, slots=True)
class _Block:
    """Neighbouring spans of one shape with equally many rows."""

    start: int
    stop: int
    adapters: list[TrainingAdapter]


class SpanMix:
    """The spans of one pass, in order and without overlap. Rows in none use the base model only."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._blocks = list(_blocks(spans))
        # Without an input that wants a gradient, autograd would skip a first layer whose own input wants none.
        self._anchor = torch.empty(0, requires_grad=any(span.adapter.train for span in spans))

    def linear(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer `name` applied to `x` [B, T, in]: the frozen base and each row's adapter."""
        layers = [
            (block.start, block.stop, LoraLayer(name, block.adapters))
            for block in self._blocks
            if block.adapters[0].shape.slices(name) is not None
        ]
        if not layers:
            return F.linear(x, weight, bias)
        out: Tensor = _SpanLinear.apply(  # type: ignore[no-untyped-call]  # torch annotates all but `apply`
            x, self._anchor, weight, bias, layers
        )
        return out


class _SpanLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        layers: list[tuple[int, int, LoraLayer]],
    ) -> Tensor:
        y = F.linear(x, weight, bias)
        inner = [layer.add_delta(_tokens(x, start, stop), _tokens(y, start, stop)) for start, stop, layer in layers]
        ctx.save_for_backward(x, weight, *inner)
        ctx.layers = layers
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x, weight, *inner = ctx.saved_tensors
        slope = slopes[0].contiguous()
        back = slope @ weight if ctx.needs_input_grad[0] else None
        for (start, stop, layer), each in zip(ctx.layers, inner, strict=True):
            before = None if back is None else _tokens(back, start, stop)
            layer.add_gradients(_tokens(x, start, stop), each, _tokens(slope, start, stop), before)
        return back, None, None, None, None


def _blocks(spans: Sequence[Span]) -> Sequence[_Block]:
    grouped = groupby(spans, key=lambda span: (span.adapter.shape, span.stop - span.start))
    runs = [list(group) for _, group in grouped]
    return [_Block(run[0].start, run[-1].stop, [span.adapter for span in run]) for run in runs]


def _tokens(x: Tensor, start: int, stop: int) -> Tensor:
    """Rows `start` to `stop` of [B, T, width] as a view [tokens, width]."""
    return x[start:stop].view(-1, x.shape[2])


def _add(total: Tensor, left: Tensor, right: Tensor, scale: float = 1.0) -> None:
    """total += scale · left · right, whatever their dtypes; with a leading dimension for each adapter or without."""
    if total.dtype is not left.dtype:
        total.add_(left @ right, alpha=scale)
    elif total.dim() == 2:
        total.addmm_(left, right, alpha=scale)
    else:
        total.baddbmm_(left, right, alpha=scale)
