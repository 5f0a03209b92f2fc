"""Rows that begin alike, folded: what they share lies in memory once, and only attention sees whole rows.

A folded pass is a list of tokens, each a batch row of length one to the model. All its layers but attention treat
tokens one by one, so they never notice. Attention unfolds the tokens into rows, runs as on separate rows and folds
its output, keeping one of the equal copies; gradients take the same way back, added up where rows share.
"""

from typing import Any

import torch
from torch import Tensor

from workers.model.prefixes import Layout, Piece


class Folding:
    """The way of one pass between its N tokens and its rows [R, L]. Keeps the masks that its layers ask for."""

    def __init__(self, layout: Layout) -> None:
        self.tokens, self.rows, self.longest = layout.ends[-1], layout.rows, layout.longest
        self._pieces = layout.pieces
        held = sum((each.last - each.first) * (each.right - each.left) for each in layout.pieces)
        self._full = held == self.rows * self.longest
        self.windows: set[int | None] = set()  #: of the layers it has been through
        self._masks: dict[tuple[int, torch.device], Tensor] = {}

    def unfold(self, tokens: Tensor) -> Tensor:
        """[N, ...] as [R, L, ...]; zero where a row has ended."""
        rows: Tensor = _Unfold.apply(tokens, self)  # type: ignore[no-untyped-call]  # torch annotates all but `apply`
        return rows

    def fold(self, rows: Tensor) -> Tensor:
        """[R, L, ...] as [N, ...]; of tokens that rows share the first row's."""
        tokens: Tensor = _Fold.apply(rows, self)  # type: ignore[no-untyped-call]  # torch annotates all but `apply`
        return tokens

    def mask(self, window: int | None, device: torch.device) -> Tensor | None:
        """Where attention with a sliding window may look, bool [1, 1, L, L]; None if that is all that came before."""
        self.windows.add(window)
        if window is None or window >= self.longest:
            return None
        if (window, device) not in self._masks:
            seen = torch.ones((self.longest, self.longest), dtype=torch.bool, device=device)
            self._masks[window, device] = seen.tril().triu(1 - window)[None, None]
        return self._masks[window, device]

    def spread(self, tokens: Tensor) -> Tensor:
        rows = self._rows_like(tokens)
        for piece in self._pieces:
            _place(rows, piece).copy_(_held(tokens, piece))
        return rows

    def summed(self, rows: Tensor) -> Tensor:
        """The adjoint of `spread`."""
        tokens = rows.new_empty((self.tokens, *rows.shape[2:]))
        for piece in self._pieces:
            if piece.shared:
                torch.sum(_place(rows, piece), 0, out=tokens[piece.start : piece.stop])
            else:
                _held(tokens, piece).copy_(_place(rows, piece))
        return tokens

    def first(self, rows: Tensor) -> Tensor:
        tokens = rows.new_empty((self.tokens, *rows.shape[2:]))
        for piece in self._pieces:
            _held(tokens, piece).copy_(_owner(rows, piece))
        return tokens

    def placed(self, tokens: Tensor) -> Tensor:
        """The adjoint of `first`."""
        rows = tokens.new_zeros((self.rows, self.longest, *tokens.shape[1:]))
        for piece in self._pieces:
            _owner(rows, piece).copy_(_held(tokens, piece))
        return rows

    def _rows_like(self, tokens: Tensor) -> Tensor:
        shape = (self.rows, self.longest, *tokens.shape[1:])
        return tokens.new_empty(shape) if self._full else tokens.new_zeros(shape)


def _place(rows: Tensor, piece: Piece) -> Tensor:
    return rows[piece.first : piece.last, piece.left : piece.right]


def _owner(rows: Tensor, piece: Piece) -> Tensor:
    """Where the copy lies that counts."""
    return rows[piece.first : piece.first + 1 if piece.shared else piece.last, piece.left : piece.right]


def _held(tokens: Tensor, piece: Piece) -> Tensor:
    """A piece's tokens as [1 or rows, columns, ...], a view."""
    return tokens[piece.start : piece.stop].view(-1, piece.right - piece.left, *tokens.shape[1:])


class _Unfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, folding: Folding) -> Tensor:
        ctx.folding = folding
        return folding.spread(tokens)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        return ctx.folding.summed(slopes[0]), None


class _Fold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, folding: Folding) -> Tensor:
        ctx.folding = folding
        return folding.first(rows)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        return ctx.folding.placed(slopes[0]), None
