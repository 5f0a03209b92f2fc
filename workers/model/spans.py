"""Adapters in training: which rows of a pass belong to which adapter, each with room for its gradient.

Rows of one adapter stand together, so an adapter is applied to a slice and its weights are used where they lie: nothing
is stacked, gathered or padded, and ranks and targets may differ from span to span. Gradients of A and B are written by
hand straight into the adapter's flat gradient; autograd only sees the layer's input and output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from workers.model.layout import LoraShape

#: Up to this many tokens an adapter is applied in float32: reading its weights costs more than computing with them.
FEW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Matrices:
    """One target's A [rank, in] and B [out, rank] and their gradients, all views of flat float32 vectors."""

    a: Tensor
    b: Tensor
    scale: float
    a_grad: Tensor | None
    b_grad: Tensor | None


class TrainingAdapter:
    """An adapter's flat weights [size] and, unless it only runs forward, a flat gradient that passes add to."""

    def __init__(self, shape: LoraShape, weights: Tensor, *, train: bool) -> None:
        self.shape, self.weights = shape, weights.detach()
        self.grad = torch.zeros_like(self.weights) if train else None
        self._cut: dict[str, Matrices | None] = {}

    def matrices(self, name: str) -> Matrices | None:
        """Of one target; None where this adapter leaves it alone."""
        if name not in self._cut:
            self._cut[name] = self._matrices(name)
        return self._cut[name]

    def _matrices(self, name: str) -> Matrices | None:
        slices, rank = self.shape.slices(name), self.shape.rank
        if slices is None:
            return None
        a_form, b_form = (rank, slices.target.in_features), (slices.target.out_features, rank)
        return Matrices(
            self.weights[slices.a].view(a_form),
            self.weights[slices.b].view(b_form),
            self.shape.scale,
            None if self.grad is None else self.grad[slices.a].view(a_form),
            None if self.grad is None else self.grad[slices.b].view(b_form),
        )


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` to `stop` of a batch use `adapter`."""

    start: int
    stop: int
    adapter: TrainingAdapter


class SpanMix:
    """The spans of one pass; they do not overlap. Rows in none use the base model only."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        # Without an input that wants a gradient, autograd would skip a first layer whose own input wants none.
        self._anchor = torch.empty(0, requires_grad=any(span.adapter.grad is not None for span in spans))

    def linear(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer `name` applied to `x` [B, T, in]: the frozen base and each row's adapter."""
        pieces = [
            (span.start, span.stop, found)
            for span in self._spans
            if (found := span.adapter.matrices(name)) is not None
        ]
        if not pieces:
            return F.linear(x, weight, bias)
        out: Tensor = _SpanLinear.apply(x, self._anchor, weight, bias, pieces)
        return out


Pieces = list[tuple[int, int, Matrices]]


class _SpanLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, weight: Tensor, bias: Tensor | None, pieces: Pieces) -> Tensor:
        y = F.linear(x, weight, bias)
        inner = []
        for start, stop, m in pieces:
            rows = _flat(x, start, stop)
            a, b, rows = _ready(m, rows)
            h = rows @ a.T
            _flat(y, start, stop).addmm_(h.to(y.dtype), b.to(y.dtype).T, alpha=m.scale)
            inner.append(h)
        ctx.save_for_backward(x, weight, *inner)
        ctx.pieces = pieces
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x, weight, *inner = ctx.saved_tensors
        back = slopes[0] @ weight if ctx.needs_input_grad[0] else None
        for (start, stop, m), h in zip(ctx.pieces, inner, strict=True):
            a, b, rows = _ready(m, _flat(x, start, stop))
            slope = _flat(slopes[0], start, stop).to(rows.dtype)
            bottle = (slope @ b).mul_(m.scale)
            _add_product(m.a_grad, bottle, rows, 1.0)
            _add_product(m.b_grad, slope, h, m.scale)
            if back is not None:
                _flat(back, start, stop).addmm_(bottle.to(back.dtype), a.to(back.dtype))
        return back, None, None, None, None


def _flat(x: Tensor, start: int, stop: int) -> Tensor:
    """Rows `start` to `stop` of [B, T, width] as a view [tokens, width]."""
    return x[start:stop].view(-1, x.shape[2])


def _ready(m: Matrices, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and input in the dtype to compute in."""
    if rows.dtype is torch.float32:
        return m.a, m.b, rows
    if len(rows) <= FEW_TOKENS:
        return m.a, m.b, rows.float()
    return m.a.to(rows.dtype), m.b.to(rows.dtype), rows


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, scale: float) -> None:
    """total += scale · leftᵀ · right, in float32 where both are."""
    assert total is not None, "a pass with gradients needs room for them"
    if left.dtype is torch.float32:
        total.addmm_(left.T, right, alpha=scale)
    else:
        total.add_(left.T @ right, alpha=scale)
