"""All adapters of a decode step in one: their A side by side, their B one under the other, and a mask of who uses what.

Two matrix products per linear layer, however many adapters of whatever ranks the rows use. Decoding feeds few rows:
there the number of products counts, and the columns computed in vain cost little. Knows no policies by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.model.layout import LoraShape


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
        self._weights: dict[str, _Weights | None] = {}

    def weights(self, name: str) -> _Weights | None:
        """Of one linear layer, by module path; None where no adapter changes it."""
        if name not in self._weights:
            self._weights[name] = self._laid_out(name)
        return self._weights[name]

    def _laid_out(self, name: str) -> _Weights | None:
        members = tuple(member for member, names in enumerate(self._names) if name in names)
        if not members:
            return None
        pairs = [_matrices(*self.adapters[member], name) for member in members]
        if len(pairs) == 1:
            a, b = pairs[0]
        else:
            a, b = torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs], 1)
        return _Weights(a.t(), b.t(), members)


class JoinedPart:
    """A batch of one token per row; row i uses adapter `index[i]`, or none where that is -1. Part of a Mix."""

    def __init__(self, joined: Joined, index: Sequence[int]) -> None:
        self._joined, self._index = joined, tuple(index)
        self._columns: dict[tuple[int, ...], tuple[Tensor | None, Tensor | float]] = {}

    def first(self, count: int) -> "JoinedPart | None":
        """The part that keeps only the first `count` rows."""
        kept = self._index[:count]
        return JoinedPart(self._joined, kept) if any(index >= 0 for index in kept) else None

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [n, 1, out] plus the adapters' part for `x` [n, 1, in], in place; without gradients."""
        weights = self._joined.weights(name)
        if weights is None:
            return y
        others, scale = self._masked(weights)
        inner = x.flatten(0, 1).to(weights.a.dtype) @ weights.a
        if others is not None:
            inner.masked_fill_(others, 0.0)
        return y.add_((inner.mul_(scale) @ weights.b).view(y.shape))

    def _masked(self, weights: _Weights) -> tuple[Tensor | None, Tensor | float]:
        """Where a row does not use a column's adapter (None: all use it), bool [n, columns]; and the columns' scale."""
        if weights.members not in self._columns:
            shapes = [self._joined.adapters[member][0] for member in weights.members]
            device = weights.a.device
            owner = torch.tensor(
                [member for member, shape in zip(weights.members, shapes, strict=True) for _ in range(shape.rank)],
                device=device,
            )
            others = owner[None, :] != torch.tensor(self._index, device=device)[:, None]
            scales = torch.tensor([shape.scale for shape in shapes for _ in range(shape.rank)], device=device)
            same = len({shape.rank for shape in shapes}) == 1
            self._columns[weights.members] = (
                others if bool(others.any()) else None,
                shapes[0].scale if same else scales.to(weights.a.dtype),
            )
        return self._columns[weights.members]


def _matrices(shape: LoraShape, flat: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Views of A [rank, in] and B [out, rank]."""
    a, b = shape.parts(name)
    return flat[a].view(shape.rank, -1), flat[b].view(-1, shape.rank)
