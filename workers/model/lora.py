"""Many LoRA adapters in one pass: stacks of adapters, which batch row uses which, and the linear layer that obeys.

Without gradients; training has its own mix in `spans.py`. It knows tensors only, not whose adapter a row uses. One
thread computes at a time.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from workers.model.alike import Alike
from workers.model.layout import LoraShape
from workers.model.packed import PackedWeight
from workers.model.spans import SpanMix

#: Up to this many adapters are computed for every row and masked, which beats gathering weights.
MASKED_AT_MOST = 8


class AdapterStack:
    """U adapters of one shape. `data` is [U, shape.size], best in the base's dtype: else it is cast once per mix."""

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


class _Way(Enum):
    """How a part's rows meet their adapters."""

    ONE = auto()  #: all rows use one adapter: plain matrix products
    GROUPS = auto()  #: entry after entry, each for the same number of rows: batched products, nothing copied
    MASK = auto()  #: few adapters: each computes all rows, the wrong ones are zeroed
    GATHER = auto()  #: each row gets a copy of its adapter's weights


class MixPart:
    """Rows of a batch that use adapters of one stack.

    `rows` are batch row numbers, int64 [n], or None for all rows in order; `index` int64 [n] says which stack entry
    each of them uses. Pass them on the CPU: they are read there and copied to the stack's device. A part
    remembers the weights it prepared, so make a new part after changing a stack's data.
    """

    def __init__(self, stack: AdapterStack, rows: Tensor | None, index: Tensor) -> None:
        self.stack = stack
        self._entries: list[int] = index.tolist()
        device = stack.data.device
        self._rows_there = None if rows is None else rows.to(device)
        used = sorted(set(self._entries))
        self._used = None if used == list(range(len(stack))) else torch.tensor(used, device=device)
        self._place = torch.tensor([used.index(entry) for entry in self._entries], device=device)
        self._groups = len(used)
        each = len(self._entries) // len(used)
        self._even = self._entries == [entry for entry in used for _ in range(each)]
        self._mask: Tensor | None = None
        self._ready: dict[str, tuple[Tensor, Tensor]] = {}

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [B, T, out] plus the adapters' part for `x` [B, T, in]. May work in place; use the result."""
        pair = self.stack.pair(name)
        if pair is None:
            return y
        if self._rows_there is None:
            return self._plus(name, pair, x, y)
        mine = x.index_select(0, self._rows_there)
        nothing = y.new_zeros((1, 1, 1)).expand(*mine.shape[:2], y.shape[2])
        return y.index_add_(0, self._rows_there, self._plus(name, pair, mine, nothing))

    def _plus(self, name: str, pair: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> Tensor:
        way = self._way()
        a, b = self._prepared(name, pair, way, x.dtype)
        scale = self.stack.shape.scale
        match way:
            case _Way.ONE:
                flat = torch.addmm(y.reshape(-1, y.shape[2]), x.reshape(-1, x.shape[2]) @ a, b, alpha=scale)
            case _Way.GROUPS | _Way.GATHER:
                blocks = x.reshape(a.shape[0], -1, x.shape[2])
                flat = torch.baddbmm(y.reshape(a.shape[0], -1, y.shape[2]), torch.bmm(blocks, a), b, alpha=scale)
            case _Way.MASK:
                inner = torch.matmul(x.reshape(-1, x.shape[2]), a).view(a.shape[0], *x.shape[:2], a.shape[2])
                inner = inner.masked_fill_(self._others(), 0.0).flatten(1, 2)
                flat = torch.addbmm(y.reshape(-1, y.shape[2]), inner, b, alpha=scale)
        return flat.view(y.shape)

    def _way(self) -> _Way:
        if self._groups == 1:
            return _Way.ONE
        if self._even:
            return _Way.GROUPS
        if self._groups <= MASKED_AT_MOST:
            return _Way.MASK
        return _Way.GATHER

    def _prepared(self, name: str, pair: tuple[Tensor, Tensor], way: _Way, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """A and B transposed, in the dtype to compute in: [in, rank] and [rank, out], with the groups in front."""
        if name not in self._ready:
            self._ready[name] = self._prepare(pair, way, dtype)
        return self._ready[name]

    def _prepare(self, pair: tuple[Tensor, Tensor], way: _Way, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        a, b = pair
        if self._used is not None:
            a, b = a.index_select(0, self._used), b.index_select(0, self._used)
        a, b = a.to(dtype).transpose(1, 2), b.to(dtype).transpose(1, 2)
        if way is _Way.ONE:
            return a.squeeze(0), b.squeeze(0)
        if way is _Way.GATHER:
            return a.index_select(0, self._place), b.index_select(0, self._place)
        return a, b

    def _others(self) -> Tensor:
        """[groups, n, 1, 1], true where a row does not use that adapter."""
        if self._mask is None:
            groups = torch.arange(self._groups, device=self._place.device)
            self._mask = (groups[:, None] != self._place[None, :])[:, :, None, None]
        return self._mask


class Part(Protocol):
    """What a mix is made of; MixPart is the general one."""

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
