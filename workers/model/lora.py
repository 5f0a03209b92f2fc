"""Many LoRA adapters in one pass: stacks of adapters, the mix that says which row uses which, and the linear layer
that obeys.

Without gradients; training has its own mix in `spans.py`. It knows tensors only, not whose adapter a row uses. One
thread computes at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workers.model.alike import Alike
from workers.model.layout import LoraShape
from workers.model.packed import PackedWeight
from workers.model.spans import SpanMix


class AdapterStack:
    """U adapters of one shape. `data` is [U, shape.size]."""

    def __init__(self, shape: LoraShape, data: Tensor) -> None:
        assert data.shape[1:] == (shape.size,), f"{tuple(data.shape)} does not hold adapters of size {shape.size}"
        self.shape, self.data = shape, data
        sizes = [part.stop - part.start for target in shape.targets for part in shape.parts(target.name)]
        self._views = dict(zip(shape.names, self._pairs(torch.split(data, sizes, dim=1)), strict=True))

    def __len__(self) -> int:
        return self.data.shape[0]

    def a(self, name: str) -> Tensor | None:
        """A of one target, [U, rank, in_features], a view; None where this shape leaves the target alone."""
        pair = self._views.get(name)
        return None if pair is None else pair[0]

    def b(self, name: str) -> Tensor | None:
        """B of one target, [U, out_features, rank], a view; None where this shape leaves the target alone."""
        pair = self._views.get(name)
        return None if pair is None else pair[1]

    def pair(self, name: str) -> tuple[Tensor, Tensor] | None:
        return self._views.get(name)

    def _pairs(self, pieces: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        rank, count = self.shape.rank, len(self)
        for target, a, b in zip(self.shape.targets, pieces[::2], pieces[1::2], strict=True):
            yield a.view(count, rank, target.in_features), b.view(count, target.out_features, rank)


class Part(Protocol):
    """What a mix is made of: rows of a batch that use adapters."""

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [B, T, out] plus the adapters' part for `x` [B, T, in], in linear layer `name`."""
        ...


class Mix:
    """Which rows of a batch use which adapters. No row is in two parts; a row in none uses the base model only."""

    def __init__(self, parts: tuple[Part, ...] = ()) -> None:
        self.parts = parts

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [B, T, out] or [B, out], which the frozen layer `name` makes of `x`, plus each row's adapter. May work in
        place; use the result."""
        if not self.parts:
            return y
        x3, y3 = (x, y) if x.dim() == 3 else (x.unsqueeze(1), y.unsqueeze(1))
        for part in self.parts:
            y3 = part.add(name, x3, y3)
        return y3 if x.dim() == 3 else y3.squeeze(1)


class CurrentMix:
    """The mix that all linear layers of one model obey at the moment, and how."""

    def __init__(self) -> None:
        self.mix: Mix | SpanMix = Mix()
        self.alike: Alike | None = None  #: set while rows must get the same bits whatever is beside them


class MultiLoraLinear(nn.Module):
    """A frozen linear layer that adds to each batch row what the row's adapter says. Input [B, T, in] or [B, in]."""

    def __init__(self, base: nn.Linear, name: str, current: CurrentMix) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias  # the same Parameters: tied embeddings stay tied
        self.in_features, self.out_features = base.in_features, base.out_features
        self.name, self.current = name, current
        self.packed: PackedWeight | None = None  #: for passes without gradients

    def forward(self, x: Tensor) -> Tensor:
        mix = self.current.mix
        if isinstance(mix, SpanMix):
            return mix.linear(self.name, x, self.weight, self.bias)
        return mix.add(self.name, x, self._frozen(x) if self.current.alike is None else self._alike(x))

    def _frozen(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) if self.packed is None else self.packed.linear(x, self.bias)

    def _alike(self, x: Tensor) -> Tensor:
        assert self.current.alike is not None
        key = (self.in_features, self.out_features, self.bias is None, self.packed is None)
        rows = self.current.alike.rows(key, self._frozen, x.reshape(-1, x.shape[-1]))
        return rows.view(*x.shape[:-1], self.out_features)


class SteadyActivation(nn.Module):
    """An activation of a model: libraries compute the last numbers of an array in another way than the rest."""

    def __init__(self, base: nn.Module, current: CurrentMix) -> None:
        super().__init__()
        self.base, self.current = base, current

    def forward(self, x: Tensor) -> Tensor:
        if self.current.alike is None:
            activated: Tensor = self.base(x)
            return activated
        key = (type(self.base), x.shape[-1])
        return self.current.alike.rows(key, self.base, x.reshape(-1, x.shape[-1])).view(x.shape)
