"""The adapters of a decode step, each computed as if its rows were alone: for rows whose bits depend on no others.

An adapter's rows fill blocks of a fixed size, and blocks are entries of batched products in float32. That is slower
than `joined`, whose products depend on which adapters are there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.model.alike import BLOCK, Alike
from workers.model.layout import LoraShape
from workers.model.lora import AdapterStack


class ApartPart:
    """A batch of one token per row; row i uses adapter `index[i]`, or none where that is -1. Part of a Mix."""

    def __init__(self, adapters: Sequence[tuple[LoraShape, Tensor]], index: Sequence[int], alike: Alike) -> None:
        """`adapters` are shapes with flat vectors [shape.size]; those of one shape share products."""
        self._groups = [
            _Group(shape, adapters, index, alike)
            for shape in dict.fromkeys(adapters[member][0] for member in index if member >= 0)
        ]

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`y` [n, 1, out] plus the adapters' part for `x` [n, 1, in], in place; without gradients."""
        for group in self._groups:
            group.add(name, x.flatten(0, 1), y.flatten(0, 1))
        return y


class _Group:
    """Adapters of one shape and their rows."""

    def __init__(
        self, shape: LoraShape, adapters: Sequence[tuple[LoraShape, Tensor]], index: Sequence[int], alike: Alike
    ) -> None:
        members = [member for member in dict.fromkeys(index) if member >= 0 and adapters[member][0] == shape]
        blocks = [
            (member, rows[at : at + BLOCK])
            for member in members
            for rows in [[row for row, used in enumerate(index) if used == member]]
            for at in range(0, len(rows), BLOCK)
        ]
        device = adapters[members[0]][1].device
        self._stack = AdapterStack(shape, torch.stack([adapters[member][1] for member, _ in blocks]).float())
        self._scale, self._count, self._alike = shape.scale, len(blocks), alike
        self._rows = torch.tensor([row for _, rows in blocks for row in rows], device=device)
        places = [block * BLOCK + at for block, (_, rows) in enumerate(blocks) for at in range(len(rows))]
        self._places = torch.tensor(places, device=device)

    def add(self, name: str, x: Tensor, y: Tensor) -> None:
        """y [n, out] plus the part of x [n, in], in place."""
        pair = self._stack.pair(name)
        if pair is None:
            return
        a, b = pair
        blocks = torch.zeros(self._count * BLOCK, x.shape[1], device=x.device)
        blocks[self._places] = x[self._rows].float()
        inner = self._alike.entries(blocks.view(self._count, BLOCK, -1), a.mT)
        delta = self._alike.entries(inner, b.mT).flatten(0, 1)[self._places]
        y[self._rows] = torch.add(y[self._rows].float(), delta, alpha=self._scale).to(y.dtype)
