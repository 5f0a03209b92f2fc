"""All adapters of a decode step in one: their A side by side, their B one under the other, and a mask of who uses what.

Two matrix products per linear layer, however many adapters of whatever ranks the rows use. Decoding feeds few rows:
there the number of products counts, and the columns computed in vain cost little. Knows no policies by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.model.layout import LoraShape

#: Up to so many rows times columns, a CPU multiplies in float32 faster than in bfloat16 (Zen 5: three times at 1 x 16).
SMALL = 512


@dataclass(frozen=True, slots=True)
class _Weights:
    """One linear layer's adapters."""

    a: Tensor  #: [in, columns]
    b: Tensor  #: [columns, out]
    members: tuple[int, ...]  #: the adapters that change this layer, in column order


class Joined:
    """Adapters side by side; each linear layer's are laid out when it first asks. One alone is used where it lies."""

    def __init__(self, adapters: Sequence[tuple[LoraShape, Tensor]]) -> None:
        """`adapters` are shapes with flat vectors [shape.size] of one dtype and device."""
        self.adapters = tuple(adapters)
        self._names = [frozenset(shape.names) for shape, _ in self.adapters]
        self._weights: dict[tuple[str, torch.dtype], _Weights | None] = {}

    @property
    def columns(self) -> int:
        """Ranks of all adapters together."""
        return sum(shape.rank for shape, _ in self.adapters)

    def weights(self, name: str, dtype: torch.dtype) -> _Weights | None:
        """Of one linear layer, by module path; None where no adapter changes it."""
        key = (name, dtype)
        if key not in self._weights:
            self._weights[key] = self._laid_out(name, dtype)
        return self._weights[key]

    def _laid_out(self, name: str, dtype: torch.dtype) -> _Weights | None:
        members = tuple(member for member, names in enumerate(self._names) if name in names)
        if not members:
            return None
        pairs = [_matrices(*self.adapters[member], name) for member in members]
        a, b = pairs[0] if len(pairs) == 1 else (torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs], 1))
        return _Weights(a.to(dtype).t(), b.to(dtype).t(), members)


class JoinedPart:
    """A batch of one token per row; row i uses adapter `index[i]`, or none where that is -1. Part of a Mix."""

    def __init__(self, joined: Joined, index: Sequence[int]) -> None:
        self._joined, self._index = joined, tuple(index)
        dtypes = {flat.dtype for _, flat in joined.adapters}
        self._small = len(self._index) * joined.columns <= SMALL and dtypes == {torch.float32}
        self._columns: dict[tuple[int, ...], _Columns] = {}

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [n, 1, out] plus the adapters' part for `x` [n, 1, in]; without gradients."""
        dtype = torch.float32 if self._small else y.dtype
        weights = self._joined.weights(name, dtype)
        if weights is None:
            return y
        columns = self._of(weights)
        inner = x.flatten(0, 1).to(dtype) @ weights.a
        if columns.others is not None:
            inner.masked_fill_(columns.others, 0.0)
        if columns.scales is not None:
            inner.mul_(columns.scales)
        return torch.addmm(y.flatten(0, 1).to(dtype), inner, weights.b, alpha=columns.scale).to(y.dtype).view(y.shape)

    def _of(self, weights: _Weights) -> "_Columns":
        if weights.members not in self._columns:
            shapes = [self._joined.adapters[member][0] for member in weights.members]
            self._columns[weights.members] = _columns(weights, shapes, self._index)
        return self._columns[weights.members]


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the columns of a layer's weights mean to the rows of a batch."""

    others: Tensor | None  #: bool [n, columns], true where a row does not use the column's adapter; None: all use all
    scales: Tensor | None  #: by column, where they differ
    scale: float  #: on top of `scales`


def _columns(weights: _Weights, shapes: Sequence[LoraShape], index: Sequence[int]) -> _Columns:
    device = weights.a.device
    owners = [member for member, shape in zip(weights.members, shapes, strict=True) for _ in range(shape.rank)]
    others = torch.tensor(owners, device=device)[None, :] != torch.tensor(index, device=device)[:, None]
    used = others if bool(others.any()) else None
    if len({shape.rank for shape in shapes}) == 1:
        return _Columns(used, None, shapes[0].scale)
    scales = [shape.scale for shape in shapes for _ in range(shape.rank)]
    return _Columns(used, torch.tensor(scales, dtype=weights.a.dtype, device=device), 1.0)


def _matrices(shape: LoraShape, flat: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Views of A [rank, in] and B [out, rank]."""
    a, b = shape.parts(name)
    return flat[a].view(shape.rank, -1), flat[b].view(-1, shape.rank)
