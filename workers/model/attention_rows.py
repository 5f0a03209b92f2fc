"""Attention of a decode step by bands of rows, and whether rows get the same bits whatever rows are beside them.

A band's rows attend at once, over as many keys as its longest has; keys fill whole blocks of `LENGTH` with masked ones.
Where a trial shows that longer masked ends and more rows change nothing, any bands will do for rows whose bits must not
depend on others; else each must be a band by itself, over its own blocks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

LENGTH = 16  #: keys of a row are a multiple of this
#: (tokens of a row, keys in the batch, rows in the batch)
TRIALS = ((5, 16, 3), (5, 528, 2), (40, 64, 2), (300, 304, 3), (300, 1040, 2), (700, 1040, 2))


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring rows, and how many keys the longest of them has, in whole blocks."""

    rows: slice
    keys: int


#: How the rows of a decode step attend; None: all at once. A context belongs to one thread.
BANDS: ContextVar[Sequence[Band] | None] = ContextVar("BANDS", default=None)


@contextmanager
def banded(bands: Sequence[Band]) -> Iterator[None]:
    """Inside, decode steps attend in these bands, which hold every row once, in order."""
    token = BANDS.set(bands if len(bands) > 1 else None)
    try:
        yield
    finally:
        BANDS.reset(token)


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


def each_alone(lengths: Sequence[int]) -> list[Band]:
    """A band for each row of so many tokens."""
    return [Band(slice(row, row + 1), whole_blocks(length)) for row, length in enumerate(lengths)]


def in_bands(attend: Attend, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, bands: Sequence[Band]) -> Tensor:
    """`attend` of each band; query [B, H, 1, D], key and value [B, G, S, D], mask [B, 1, 1, S]."""
    outs = [
        attend(
            query[band.rows],
            key[band.rows, :, : band.keys],
            value[band.rows, :, : band.keys],
            mask[band.rows, ..., : band.keys],
        )
        for band in bands
    ]
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
    apart = in_bands(attend, query, key, value, mask, each_alone(lengths))
    return torch.equal(attend(query, key, value, mask), apart)
