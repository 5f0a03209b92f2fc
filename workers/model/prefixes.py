"""Which rows begin alike, so that what they share is run once: pure decisions over token bytes. Knows no tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

#: A product of attention more costs as much as this many places of a score matrix.
PRODUCT = 2500
#: A beginning is shared only where that saves this many tokens: less is not worth the copying.
LEAST_SAVED = 8


@dataclass(frozen=True, slots=True)
class Stem:
    """What rows `first` to `last` have in common between the columns `left` and `right`."""

    first: int
    last: int
    left: int
    right: int

    @property
    def tokens(self) -> int:
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of a pass, from number `start` on, that rows `first` to `last` hold in `left` to `right`.

    Either every row holds all of them (`shared`), or each holds its own and they stand row after row.
    """

    start: int
    first: int
    last: int
    left: int
    right: int
    shared: bool

    @property
    def stop(self) -> int:
        width = self.right - self.left
        return self.start + (width if self.shared else width * (self.last - self.first))


@dataclass(frozen=True, slots=True)
class Band:
    """Queries that attend in one product: of rows `first` to `last` the columns `left` to `right`, over all before.

    Their tokens are those of `pieces`: consecutive, and no other band's.
    """

    pieces: tuple[Piece, ...]
    first: int
    last: int
    left: int
    right: int

    @property
    def scores(self) -> int:
        return (self.last - self.first) * (self.right - self.left) * self.right


@dataclass(frozen=True, slots=True)
class Layout:
    """All rows of a pass as pieces. The tokens of group g end at number `ends[g]`; `rows` rows, `longest` columns."""

    pieces: tuple[Piece, ...]
    ends: tuple[int, ...]
    rows: int
    longest: int


def stems(rows: Sequence[bytes], item: int = 4, least: int = LEAST_SAVED) -> Iterator[Stem]:
    """The tree of beginnings of sorted `rows`, each `item` bytes per token, parents before children.

    Every token of every row is in exactly one stem. A row that is the beginning of another has no stem of its own.
    """
    alike = [_alike(one, other, item) for one, other in pairwise(rows)]
    waiting = [(0, len(rows), 0)] if rows else []
    while waiting:
        first, last, left = waiting.pop()
        if last - first == 1:
            length = len(rows[first]) // item
            if length > left:
                yield Stem(first, last, left, length)
            continue
        right = min(alike[first : last - 1])
        if (right - left) * (last - first - 1) >= least:
            yield Stem(first, last, left, right)
            left = right
        cuts = [first, *(n + 1 for n in range(first, last - 1) if alike[n] == right), last]
        waiting += reversed([(start, stop, left) for start, stop in pairwise(cuts)])


def layout(groups: Sequence[Sequence[bytes]], item: int = 4) -> Layout:
    """Lays out the rows of each group, sorted, one group after another; rows share nothing across groups."""
    pieces: list[Piece] = []
    ends, rows, start = [], 0, 0
    for group in groups:
        for stem in stems(group, item):
            shared = stem.last - stem.first > 1
            piece = Piece(start, stem.first + rows, stem.last + rows, stem.left, stem.right, shared)
            start = piece.stop
            _append(pieces, piece)
        ends.append(start)
        rows += len(group)
    return Layout(tuple(pieces), tuple(ends), rows, max(piece.right for piece in pieces))


def bands(laid: Layout) -> list[Band]:
    """The cheaper of two ways: shared pieces attend once, by themselves, or all rows as if nothing was shared."""
    whole = Band(laid.pieces, 0, laid.rows, 0, laid.longest)
    parted = [_band(list(group)) for group in _neighbours(laid.pieces)]
    cost = sum(band.scores + PRODUCT for band in parted)
    return parted if cost < whole.scores + PRODUCT else [whole]


def _neighbours(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Shared pieces alone; the others with those that begin in the same column of the rows around them."""
    taken: list[Piece] = []
    for piece in pieces:
        before = taken[-1] if taken else piece
        if taken and (before.shared or piece.shared or (before.left, before.last) != (piece.left, piece.first)):
            yield taken
            taken = []
        taken.append(piece)
    yield taken


def _band(pieces: Sequence[Piece]) -> Band:
    first, last = pieces[0].first, pieces[-1].last
    last = first + 1 if pieces[0].shared else last  # one row's keys are all rows' keys
    return Band(tuple(pieces), first, last, pieces[0].left, max(piece.right for piece in pieces))


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Rows one below another whose own tokens fill the same columns become one piece."""
    before = pieces[-1] if pieces else piece
    place, after = (piece.left, piece.right, piece.first), (before.left, before.right, before.last)
    if pieces and place == after and not before.shared and not piece.shared:
        pieces[-1] = replace(before, last=piece.last)
    else:
        pieces.append(piece)


def _alike(one: bytes, other: bytes, item: int) -> int:
    """How many tokens two rows begin with in common."""
    low, high = 0, min(len(one), len(other)) // item
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * item : middle * item] == other[low * item : middle * item]:
            low = middle
        else:
            high = middle - 1
    return low
