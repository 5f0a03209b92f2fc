"""Which rows share a pass: pure decisions over lengths and memory. Knows neither tensors nor what the rows mean."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf
from operator import attrgetter

from workers.model.prefixes import stems
from workers.train.estimate import Load

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
    recompute: bool = False  #: layers keep their input only and compute again: a third slower for much less memory


#: Whether a pass of that load fits into memory, with recomputation or without.
Holds = Callable[[Load, bool], bool]


def always(load: Load, recompute: bool) -> bool:
    """Memory without end."""
    return True


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

    @property
    def load(self) -> Load:
        return Load(rows=len(self.rows), longest=self.longest, tokens=self.tokens, targets=self.held)


@dataclass(frozen=True, slots=True)
class Portion:
    """What a batch asks of a pack."""

    tokens: int
    kept: int  #: bytes that lie there for the whole pack
    least: int  #: bytes that its hungriest row takes by itself, beside those


def packs(portions: Sequence[Portion], pack_tokens: int, room: float = inf) -> Iterator[list[int]]:
    """Batch numbers in order, in packs of at most `pack_tokens` tokens that leave each of their rows enough of `room`
    bytes; a larger batch is a pack by itself."""
    pack: list[int] = []
    tokens = kept = least = 0
    for number, portion in enumerate(portions):
        tokens, kept, least = tokens + portion.tokens, kept + portion.kept, max(least, portion.least)
        if pack and (tokens > pack_tokens or kept + least > room):
            yield pack
            pack = []
            tokens, kept, least = portion.tokens, portion.kept, portion.least
        pack.append(number)
    if pack:
        yield pack


def passes(rows: Iterable[Row], pack_tokens: int, holds: Holds = always) -> Iterator[Pass]:
    """The rows by falling length, in passes of at most `pack_tokens` tokens with padding that memory holds; a row that
    is too much runs alone."""
    waiting = sorted(rows, key=lambda row: -row.length)
    taken: list[Row] = []
    real, recompute = 0, False
    for at, row in enumerate(waiting):
        load = _padded(len(taken) + 1, taken[0].length) if taken else _padded(1, row.length)
        wasteful = real >= FULL_TOKENS and load.tokens - real - row.length > WASTE * load.tokens
        if taken and (load.tokens > pack_tokens or wasteful or not holds(load, recompute)):
            yield Pass(taken, recompute=recompute)
            taken, real = [], 0
        if not taken:
            recompute = _must_recompute(row.length, len(waiting) - at, pack_tokens, holds)
        taken.append(row)
        real += row.length
    if taken:
        yield Pass(taken, recompute=recompute)


def plan(rows: Sequence[Row], texts: Mapping[Row, bytes], pack_tokens: int, holds: Holds = always) -> Iterator[Pass]:
    """The rows in passes of at most `pack_tokens` tokens that memory holds: families that pay folded, others padded.

    `texts` are the rows' tokens, four bytes each. A few other rows join the folded passes, where there are any.
    """
    batches = groupby(sorted(rows, key=attrgetter("batch")), key=attrgetter("batch"))
    found = [each for _, batch in batches for each in families(list(batch), texts, pack_tokens, holds)]
    paying = [each for each in found if each.pays]
    others = [row for each in found if not each.pays for row in each.rows]
    if paying and sum(row.length for row in others) < FULL_TOKENS:
        paying += [Family((row,), row.length) for row in others if holds(_padded(1, row.length), False)]
        others = [row for row in others if not holds(_padded(1, row.length), False)]
    yield from _folded(paying, texts, pack_tokens, holds)
    yield from passes(others, pack_tokens, holds)


def load_of(one: Pass, texts: Mapping[Row, bytes]) -> Load:
    """`texts` as for `plan`."""
    count, longest = len(one.rows), max(row.length for row in one.rows)
    if not one.folded:
        return _padded(count, longest)
    rows = sorted(one.rows, key=lambda row: (row.batch, texts[row]))
    batches = ([texts[row] for row in group] for _, group in groupby(rows, key=attrgetter("batch")))
    tokens = sum(stem.tokens for each in batches for stem in stems(each))
    return Load(rows=count, longest=longest, tokens=tokens, targets=sum(row.length for row in rows))


def halves(one: Pass, *, train: bool) -> list[Pass]:
    """A pass that ran out of memory, as smaller ones: of half the batches, then of half the rows, then of its one row
    with recomputation. Nothing is left to try where the answer is empty."""
    batches = list(dict.fromkeys(row.batch for row in one.rows))
    if len(batches) > 1:
        first = set(batches[: len(batches) // 2])
        parts = [row for row in one.rows if row.batch in first], [row for row in one.rows if row.batch not in first]
    elif len(one.rows) > 1:
        middle = len(one.rows) // 2
        parts = one.rows[:middle], one.rows[middle:]
    elif train and not one.recompute:
        return [Pass(one.rows, recompute=True)]
    else:
        return []
    return [Pass(part, one.folded and len(part) > 1, one.recompute) for part in parts]


def _padded(rows: int, longest: int) -> Load:
    return Load(rows=rows, longest=longest, tokens=rows * longest)


def _must_recompute(length: int, rows: int, pack_tokens: int, holds: Holds) -> bool:
    """Only where memory would end before a pass of rows of that length, if there are so many, is worth running."""
    wanted = min(rows, max(1, min(FULL_TOKENS, pack_tokens) // length))
    return not holds(_padded(wanted, length), False)


def families(rows: Sequence[Row], texts: Mapping[Row, bytes], limit: int, holds: Holds = always) -> Iterator[Family]:
    """Families of one batch's rows; those that cost more than `limit`, or than memory holds, are cut in halves."""
    rows = sorted(rows, key=lambda row: (texts[row], row.place))
    members, tokens = rows[:0], 0
    for stem in stems([texts[row] for row in rows]):
        if stem.left == 0 and members:
            yield from _within(Family(tuple(members), tokens), texts, limit, holds)
            members, tokens = [], 0
        members = members or rows[stem.first : stem.last]
        tokens += stem.tokens
    if members:
        yield from _within(Family(tuple(members), tokens), texts, limit, holds)


def _within(family: Family, texts: Mapping[Row, bytes], limit: int, holds: Holds) -> Iterator[Family]:
    count = len(family.rows)
    if count == 1 or (family.cost <= limit and _fits(family, holds)):
        yield family
        return
    for part in (family.rows[: count // 2], family.rows[count // 2 :]):
        yield from families(part, texts, limit, holds)


def _fits(family: Family, holds: Holds) -> bool:
    """With recomputation only where halves would be too small to be worth running."""
    return holds(family.load, False) or (family.tokens < 2 * FULL_TOKENS and holds(family.load, True))


def _folded(found: Sequence[Family], texts: Mapping[Row, bytes], pack_tokens: int, holds: Holds) -> Iterator[Pass]:
    """Families by falling length, so that attention has little padding."""
    taken: list[Family] = []
    recompute = False
    for family in sorted(found, key=lambda family: -family.longest):
        if taken and not _joins(family, taken, texts, pack_tokens, holds, recompute):
            yield _joined(taken, recompute)
            taken = []
        if not taken:
            recompute = not holds(family.load, False)
        taken.append(family)
    if taken:
        yield _joined(taken, recompute)


def _joined(taken: Sequence[Family], recompute: bool) -> Pass:
    return Pass([row for each in taken for row in each.rows], folded=True, recompute=recompute)


def _joins(
    family: Family,
    taken: Sequence[Family],
    texts: Mapping[Row, bytes],
    pack_tokens: int,
    holds: Holds,
    recompute: bool,
) -> bool:
    joined = [*taken, family]
    load = _load(joined, texts)
    unfolded = load.longest * load.rows
    if load.tokens + ATTENTION * (unfolded - load.tokens) > pack_tokens:
        return False
    if not holds(load, recompute):
        return False
    return load.tokens < FULL_TOKENS or unfolded - load.targets <= 2 * WASTE * unfolded


def _load(found: Sequence[Family], texts: Mapping[Row, bytes]) -> Load:
    """Of a folded pass. Families that begin alike share in another way together than apart."""
    firsts = {(each.rows[0].batch, texts[each.rows[0]][:4]) for each in found}
    if len(firsts) < len(found):
        return load_of(_joined(found, recompute=False), texts)
    return Load(
        rows=sum(len(each.rows) for each in found),
        longest=max(each.longest for each in found),
        tokens=sum(each.tokens for each in found),
        targets=sum(each.held for each in found),
    )
