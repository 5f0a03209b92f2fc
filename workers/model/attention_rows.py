"""Attention of a decode step whose rows get the same bits whatever rows are beside them.

A row's keys fill whole blocks of `LENGTH` with masked ones. Where a trial shows that longer masked ends and more rows
change nothing, all rows attend at once; else each attends by itself, over its own blocks.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

LENGTH = 16  #: keys of a row are a multiple of this
#: (tokens of a row, keys in the batch, rows in the batch)
TRIALS = ((5, 16, 3), (5, 528, 2), (40, 64, 2), (300, 304, 3), (300, 1040, 2), (700, 1040, 2))

#: Tokens of each row while rows attend by themselves; a context belongs to one thread.
APART: ContextVar[Sequence[int] | None] = ContextVar("APART", default=None)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's attention looks like to a library."""

    heads: int
    kv_heads: int
    head_size: int
    dtype: torch.dtype
    device: torch.device


Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def whole_blocks(length: int) -> int:
    return -(-length // LENGTH) * LENGTH


def row_by_row(
    attend: Attend, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, lengths: Sequence[int]
) -> Tensor:
    """`attend` of each row over its own blocks; query [B, H, 1, D], key and value [B, G, S, D], mask [B, 1, 1, S]."""
    outs = []
    for row, length in enumerate(lengths):
        here, keys = slice(row, row + 1), slice(whole_blocks(length))
        outs.append(attend(query[here], key[here, :, keys], value[here, :, keys], mask[here, ..., keys]))
    return torch.cat(outs)


def attention_trial(attend: Attend, shape: Shape) -> bool:
    """Whether rows of a batch get what they get alone."""
    generator = torch.Generator().manual_seed(0)
    return all(_same(attend, shape, trial, generator) for trial in TRIALS)


def _same(attend: Attend, shape: Shape, trial: tuple[int, int, int], generator: torch.Generator) -> bool:
    tokens, keys, rows = trial

    def draw(heads: int, length: int) -> Tensor:
        drawn = torch.randn(rows, heads, length, shape.head_size, generator=generator)
        return drawn.to(shape.device, shape.dtype)

    query, key, value = draw(shape.heads, 1), draw(shape.kv_heads, keys), draw(shape.kv_heads, keys)
    lengths = [keys] * (rows - 1) + [tokens]
    seen = torch.arange(keys)[None] < torch.tensor(lengths)[:, None]
    mask = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf")).to(shape.device, shape.dtype)[:, None, None]
    apart = row_by_row(attend, query, key, value, mask, lengths)
    return torch.equal(attend(query, key, value, mask), apart)
