"""Which rows share a pass: pure decisions over lengths. Knows neither tensors nor what the rows mean."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

#: A pass may waste this share of its tokens on padding before it is worth starting another one.
WASTE = 0.2
#: A pass with fewer tokens than this costs hardly less, so it takes more rows whatever the padding.
FULL_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Row:
    """Datum number `place` of batch number `batch`, `length` tokens long."""

    batch: int
    place: int
    length: int


def packs(batch_tokens: Sequence[int], pack_tokens: int) -> Iterator[list[int]]:
    """Batch numbers in order, in packs of at most `pack_tokens` tokens; a larger batch is a pack by itself."""
    pack: list[int] = []
    held = 0
    for number, tokens in enumerate(batch_tokens):
        if pack and held + tokens > pack_tokens:
            yield pack
            pack, held = [], 0
        pack.append(number)
        held += tokens
    if pack:
        yield pack


def passes(rows: Iterable[Row], pack_tokens: int) -> Iterator[list[Row]]:
    """The rows by falling length, in passes of at most `pack_tokens` tokens with padding; a longer row runs alone."""
    taken: list[Row] = []
    real = 0
    for row in sorted(rows, key=lambda row: -row.length):
        padded = taken[0].length * (len(taken) + 1) if taken else row.length
        wasteful = real >= FULL_TOKENS and padded - real - row.length > WASTE * padded
        if taken and (padded > pack_tokens or wasteful):
            yield taken
            taken, real = [], 0
        taken.append(row)
        real += row.length
    if taken:
        yield taken
