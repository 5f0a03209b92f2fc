"""Which rows share a pass: pure decisions over lengths. Knows neither tensors nor what the rows mean."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from workers.model.prefixes import stems

#: A pass may waste this share of its tokens on padding before it is worth starting another one.
WASTE = 0.2
#: A pass with fewer tokens than this costs hardly less, so it takes more rows whatever the padding.
FULL_TOKENS = 512
#: Folding rows that begin alike pays where at most this share of their tokens is left to run.
WORTH = 0.9
#: What a token of an unfolded row costs in attention, of what a token costs in all.
ATTENTION = 0.25


@dataclass(frozen=True, slots=True)
class Row:
    """Datum number `place` of batch number `batch`, `length` tokens long."""

    batch: int
    place: int
    length: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Rows that run together: folded, so that what rows of a batch begin with is run once, or padded as they are."""

    rows: list[Row]
    folded: bool = False


@dataclass(frozen=True)
class Family:
    """Rows of one batch that begin alike; together they have `tokens` different tokens to run."""

    rows: tuple[Row, ...]
    tokens: int

    @cached_property
    def longest(self) -> int:
        return max(row.length for row in self.rows)

    @cached_property
    def held(self) -> int:
        return sum(row.length for row in self.rows)

    @property
    def cost(self) -> int:
        """In tokens of rows by themselves."""
        return self.tokens + int(ATTENTION * (self.longest * len(self.rows) - self.tokens))

    @property
    def pays(self) -> bool:
        return self.tokens <= WORTH * self.held


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


def plan(rows: Sequence[Row], texts: Mapping[Row, bytes], pack_tokens: int) -> Iterator[Pass]:
    """The rows in passes of at most `pack_tokens` tokens: families that pay folded, the others padded.

    `texts` are the rows' tokens, four bytes each. A few other rows join the folded passes, where there are any.
    """
    batches = groupby(sorted(rows, key=attrgetter("batch")), key=attrgetter("batch"))
    found = [each for _, batch in batches for each in families(list(batch), texts, pack_tokens)]
    paying = [each for each in found if each.pays]
    others = [row for each in found if not each.pays for row in each.rows]
    if paying and sum(row.length for row in others) < FULL_TOKENS:
        paying += [Family((row,), row.length) for row in others]
        others = []
    yield from _folded(paying, pack_tokens)
    for taken in passes(others, pack_tokens):
        yield Pass(taken)


def families(rows: Sequence[Row], texts: Mapping[Row, bytes], limit: int) -> Iterator[Family]:
    """Families of one batch's rows; those that cost more than `limit` are cut in halves."""
    rows = sorted(rows, key=lambda row: (texts[row], row.place))
    members, tokens = rows[:0], 0
    for stem in stems([texts[row] for row in rows]):
        if stem.left == 0 and members:
            yield from _within(Family(tuple(members), tokens), texts, limit)
            members, tokens = [], 0
        members = members or rows[stem.first : stem.last]
        tokens += stem.tokens
    if members:
        yield from _within(Family(tuple(members), tokens), texts, limit)


def _within(family: Family, texts: Mapping[Row, bytes], limit: int) -> Iterator[Family]:
    count = len(family.rows)
    if count == 1 or family.cost <= limit:
        yield family
        return
    for part in (family.rows[: count // 2], family.rows[count // 2 :]):
        yield from families(part, texts, limit)


def _folded(found: Sequence[Family], pack_tokens: int) -> Iterator[Pass]:
    """Families by falling length, so that attention has little padding."""
    taken: list[Family] = []
    for family in sorted(found, key=lambda family: -family.longest):
        if taken and not _joins(family, taken, pack_tokens):
            yield Pass([row for each in taken for row in each.rows], folded=True)
            taken = []
        taken.append(family)
    if taken:
        yield Pass([row for each in taken for row in each.rows], folded=True)


def _joins(family: Family, taken: Sequence[Family], pack_tokens: int) -> bool:
    joined = [*taken, family]
    tokens = sum(each.tokens for each in joined)
    held = sum(each.held for each in joined)
    unfolded = taken[0].longest * sum(len(each.rows) for each in joined)
    if tokens + ATTENTION * (unfolded - tokens) > pack_tokens:
        return False
    return tokens < FULL_TOKENS or unfolded - held <= 2 * WASTE * unfolded
