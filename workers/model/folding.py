"""Rows that begin alike, folded: what they share lies in memory once, and only attention sees whole rows.

A folded pass is a list of tokens, each a batch row of length one to the model. All its layers but attention treat
tokens one by one, so they never notice. For attention the keys and values are unfolded into rows; the queries attend
in bands, those that rows share only once. Gradients take the same way back, added up where rows share.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from workers.model.prefixes import Band, Layout, Piece, bands


class Grid:
    """Tokens as rows: N tokens [N, ...] that `pieces` put into [rows, columns, ...]."""

    def __init__(self, pieces: Sequence[Piece], rows: int, columns: int) -> None:
        self.pieces, self.rows, self.columns = pieces, rows, columns
        self.tokens = pieces[-1].stop
        self._full = sum((each.last - each.first) * (each.right - each.left) for each in pieces) == rows * columns

    def spread(self, tokens: Tensor) -> Tensor:
        """[N, ...] as [rows, columns, ...]; zero where a row has ended."""
        shape = (self.rows, self.columns, *tokens.shape[1:])
        rows = tokens.new_empty(shape) if self._full else tokens.new_zeros(shape)
        for piece in self.pieces:
            _place(rows, piece).copy_(_held(tokens, piece))
        return rows

    def summed(self, rows: Tensor) -> Tensor:
        """The adjoint of `spread`."""
        tokens = rows.new_empty((self.tokens, *rows.shape[2:]))
        for piece in self.pieces:
            if piece.shared:
                torch.sum(_place(rows, piece), 0, out=tokens[piece.start : piece.stop])
            else:
                _held(tokens, piece).copy_(_place(rows, piece))
        return tokens

    def first(self, rows: Tensor) -> Tensor:
        """[rows, columns, ...] as [N, ...]; of tokens that rows share the first row's."""
        tokens = rows.new_empty((self.tokens, *rows.shape[2:]))
        for piece in self.pieces:
            _held(tokens, piece).copy_(_owner(rows, piece))
        return tokens

    def placed(self, tokens: Tensor) -> Tensor:
        """The adjoint of `first`."""
        rows = tokens.new_zeros((self.rows, self.columns, *tokens.shape[1:]))
        for piece in self.pieces:
            _owner(rows, piece).copy_(_held(tokens, piece))
        return rows


class Queries:
    """The queries of one band on their way into rows and out again. Tokens are its own only, [n, ...]."""

    def __init__(self, band: Band) -> None:
        self.band = band
        start = band.pieces[0].start
        self.tokens = band.pieces[-1].stop - start
        rows, columns = band.last - band.first, band.right - band.left
        self._shape = (rows, columns) if rows * columns == self.tokens else None
        single = rows == 1  # a shared piece that attends once
        moved = [
            replace(
                piece,
                start=piece.start - start,
                first=piece.first - band.first,
                last=rows if single else piece.last - band.first,
                left=piece.left - band.left,
                right=piece.right - band.left,
                shared=piece.shared and not single,
            )
            for piece in band.pieces
        ]
        self._grid = Grid(moved, rows, columns)

    def rows(self, tokens: Tensor) -> Tensor:
        """[n, ...] as [rows, columns, ...]."""
        if self._shape is not None:
            return tokens.unflatten(0, self._shape)  # type: ignore[no-untyped-call, no-any-return]  # not annotated
        rows: Tensor = _Spread.apply(tokens, self._grid)  # type: ignore[no-untyped-call]  # torch does not annotate it
        return rows

    def out(self, rows: Tensor) -> Tensor:
        """[rows, columns, ...] as [n, ...]."""
        if self._shape is not None:
            return rows.flatten(0, 1)
        tokens: Tensor = _First.apply(rows, self._grid)  # type: ignore[no-untyped-call]  # torch does not annotate it
        return tokens


class Folding:
    """How the N tokens of one pass attend. Keeps the masks that its layers ask for."""

    def __init__(self, layout: Layout) -> None:
        self.grid = Grid(layout.pieces, layout.rows, layout.longest)
        self.queries = [Queries(band) for band in bands(layout)]
        self.windows: set[int | None] = set()  #: of the layers it has been through
        self._masks: dict[tuple[int, int, int | None, torch.device], Tensor] = {}

    def keys(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """For each band what its queries may look at: [N, ...] as [rows, right, ...]."""
        parts: tuple[Tensor, ...] = _Keys.apply(tokens, self)  # type: ignore[no-untyped-call]  # not annotated
        return parts

    def mask(self, band: Band, window: int | None, device: torch.device) -> Tensor | None:
        """What a band's queries see through a sliding window, bool [columns, right]; None if the usual causal mask."""
        self.windows.add(window)
        window = None if window is not None and window >= band.right else window
        if band.left == 0 and window is None:
            return None
        name = (band.left, band.right, window, device)
        if name not in self._masks:
            distance = torch.arange(band.left, band.right, device=device)[:, None]
            distance = distance - torch.arange(band.right, device=device)
            self._masks[name] = (distance >= 0) & (distance < (window or band.right))
        return self._masks[name]


def _place(rows: Tensor, piece: Piece) -> Tensor:
    return rows[piece.first : piece.last, piece.left : piece.right]


def _owner(rows: Tensor, piece: Piece) -> Tensor:
    """Where the copy lies that counts."""
    return rows[piece.first : piece.first + 1 if piece.shared else piece.last, piece.left : piece.right]


def _held(tokens: Tensor, piece: Piece) -> Tensor:
    """A piece's tokens as [1 or rows, columns, ...], a view."""
    return tokens[piece.start : piece.stop].view(-1, piece.right - piece.left, *tokens.shape[1:])


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, grid: Grid) -> Tensor:
        ctx.grid = grid
        return grid.spread(tokens)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        return ctx.grid.summed(slopes[0]), None


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, grid: Grid) -> Tensor:
        ctx.grid = grid
        return grid.first(rows)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        return ctx.grid.placed(slopes[0]), None


class _Keys(torch.autograd.Function):
    """All bands at once: their keys overlap, and a gradient for each would be as large as the whole."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, folding: Folding) -> tuple[Tensor, ...]:
        ctx.folding = folding
        rows = folding.grid.spread(tokens)
        return tuple(_seen(rows, each.band) for each in folding.queries)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        grid = ctx.folding.grid
        if len(slopes) == 1:
            return grid.summed(slopes[0]), None
        rows = slopes[0].new_zeros((grid.rows, grid.columns, *slopes[0].shape[2:]))
        for slope, each in zip(slopes, ctx.folding.queries, strict=True):
            _seen(rows, each.band).add_(slope)
        return grid.summed(rows), None


def _seen(rows: Tensor, band: Band) -> Tensor:
    return rows[band.first : band.last, : band.right]
