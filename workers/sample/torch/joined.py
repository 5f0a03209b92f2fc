"""All adapters of a pass in one: their A side by side, their B one under the other, and a mask of who uses what.

Two matrix products per linear layer, however many adapters of whatever ranks the rows use: the number of products
counts, and the columns computed in vain cost little, as adapters are thin. Knows no policies by name.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.model.layout import LoraShape
from workers.model.packed import PackedWeight, packs

#: Up to so many multiplications, a CPU does a layer's two products in float32 sooner than in bfloat16, whose products
#: take 20 microseconds each to begin with (Emerald Rapids and Zen 5 alike).
SMALL = 2_000_000


class _Layer:
    """One linear layer's adapters in one dtype."""

    def __init__(
        self, pairs: Sequence[tuple[Tensor, Tensor]], members: tuple[int, ...], dtype: torch.dtype, pack: bool
    ) -> None:
        """`pairs` are A [rank, in], scaled, and B [out, rank]; `members` which adapters they are of."""
        a, b = torch.cat([a for a, _ in pairs]).to(dtype), torch.cat([b for _, b in pairs], 1).to(dtype)
        b.clamp_(torch.finfo(dtype).min, torch.finfo(dtype).max)  # rounded to infinity it would spoil other rows
        self.members, self.dtype = members, dtype
        self._a, self._b = a.t(), b.t()  #: [in, columns] and [columns, out]
        self._packed = (PackedWeight(a), PackedWeight(b)) if pack and packs(a) else None

    def inner(self, x: Tensor) -> Tensor:
        """Of all adapters for all rows, [n, columns], from `x` [n, in]."""
        x = x.to(self.dtype)
        return x @ self._a if self._packed is None else self._packed[0].linear(x, None)

    def plus(self, inner: Tensor, y: Tensor) -> Tensor:
        """`y` [n, out] plus what the adapters make of `inner`, in y's dtype; may work in place."""
        if self._packed is not None:
            return self._packed[1].plus(inner, y)
        if y.dtype is self.dtype:
            return y.addmm_(inner, self._b)  # memory for the many rows of prompts would take longer than the product
        return torch.addmm(y.to(self.dtype), inner, self._b).to(y.dtype)


class Joined:
    """Adapters side by side; each linear layer's are laid out when it first asks."""

    def __init__(self, adapters: Sequence[tuple[LoraShape, Tensor]], *, pack: bool = True) -> None:
        """`adapters` are shapes with flat vectors [shape.size] of one dtype and device; `pack` them for many passes of
        few rows."""
        self._pack = pack
        self._adapters = tuple(adapters)
        self._names = [frozenset(shape.names) for shape, _ in self._adapters]
        self._columns = sum(shape.rank for shape, _ in self._adapters)
        self._full = {flat.dtype for _, flat in self._adapters} == {torch.float32}
        self._layers: dict[tuple[str, torch.dtype], _Layer | None] = {}

    def layer(self, name: str, x: Tensor, y: Tensor) -> _Layer | None:
        """By module path, to add a product of `x` [n, in] to `y` [n, out]; None where no adapter changes it."""
        small = self._full and len(x) * self._columns * (x.shape[1] + y.shape[1]) <= SMALL
        key = (name, torch.float32 if small else y.dtype)
        if key not in self._layers:
            self._layers[key] = self._laid_out(*key)
        return self._layers[key]

    def owners(self, members: Sequence[int]) -> list[int]:
        """Whose each column is."""
        return [member for member in members for _ in range(self._adapters[member][0].rank)]

    def _laid_out(self, name: str, dtype: torch.dtype) -> _Layer | None:
        members = tuple(member for member, names in enumerate(self._names) if name in names)
        pairs = [_matrices(*self._adapters[member], name) for member in members]
        return _Layer(pairs, members, dtype, self._pack) if pairs else None


class JoinedPart:
    """A batch of T tokens per row; row i uses adapter `index[i]`, or none where that is -1. Part of a Mix."""

    def __init__(self, joined: Joined, index: Sequence[int]) -> None:
        self._joined, self._index = joined, tuple(index)
        self._layers: dict[str, tuple[_Layer, Tensor | None] | None] = {}
        self._others: dict[tuple[int, ...], Tensor | None] = {}

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [n, T, out] plus the adapters' part for `x` [n, T, in]; without gradients. May work in
        place; use the result."""
        x_rows, y_rows = x.flatten(0, 1), y.flatten(0, 1)
        if name not in self._layers:
            self._layers[name] = self._found(name, x_rows, y_rows)
        found = self._layers[name]
        if found is None:
            return y
        layer, others = found
        inner = layer.inner(x_rows)
        if others is not None:  # no product: what is there for other rows may be infinite
            inner.view(*x.shape[:2], -1).masked_fill_(others, 0.0)
        return layer.plus(inner, y_rows).view(y.shape)

    def _found(self, name: str, x: Tensor, y: Tensor) -> tuple[_Layer, Tensor | None] | None:
        """The layer's adapters, and which columns are none of a row's."""
        layer = self._joined.layer(name, x, y)
        if layer is None:
            return None
        if layer.members not in self._others:
            self._others[layer.members] = self._of_others(layer.members, x.device)
        return layer, self._others[layer.members]

    def _of_others(self, members: tuple[int, ...], device: torch.device) -> Tensor | None:
        """Bool [n, 1, columns], true where a row does not use the column's adapter; None where all use all."""
        owners = torch.tensor(self._joined.owners(members), device=device)
        others = owners[None, :] != torch.tensor(self._index, device=device)[:, None]
        return others[:, None] if bool(others.any()) else None


def _matrices(shape: LoraShape, flat: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """A [rank, in] times the scale, and B [out, rank], a view."""
    a, b = shape.parts(name)
    return flat[a].view(shape.rank, -1).float() * shape.scale, flat[b].view(-1, shape.rank)
