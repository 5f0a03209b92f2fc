"""Which strand sits where in the key/value cache. Knows no model.

Rows 0..n-1 are the samples being drawn. Behind them, in any order and with gaps, are the prompts being computed and the
strands at rest: what finished samples left, until somebody needs the place. Where a sample leaves, the last one takes
its place.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from openrl.domain.ids import DepotKey
from workers.sample.torch.bands import arranged
from workers.sample.torch.cache import RowCache, bucket
from workers.sample.torch.rows import Row
from workers.sample.torch.strands import LEAST, Strand, Tokens, nearest

#: Strands at rest make the buffer grow only while it takes at most such a part of the bound on it.
RESTING_SHARE = 4


class Table:
    """Row i of the batch is row i of the cache."""

    def __init__(self, cache: RowCache) -> None:
        self.cache = cache
        self.rows: list[Row] = []
        self._strands: list[Strand | None] = []  #: by place
        self._starting: dict[Strand, int] = {}  #: with the rows that their samples will take
        self._resting: dict[Strand, None] = {}  #: the one that goes first in front

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Strand]:
        return (strand for strand in self._strands if strand is not None)

    def nearest(self, policy: DepotKey | None, prompt: Tokens) -> tuple[Strand | None, int]:
        """See strands.nearest; what was found at rest goes last."""
        strand, common = nearest(self, policy, prompt)
        if strand in self._resting:
            self._resting[strand] = self._resting.pop(strand)
        return strand, common

    # ---------------------------------------------------------------------------------------------- prompts
    def begin(self, strand: Strand, rows: int, source: Strand | None = None, common: int = 0) -> None:
        """Give a prompt a row of the cache, and there the `common` tokens it begins with from `source`. Its samples
        will take `rows` rows."""
        first, length = len(self) + sum(self._starting.values()), len(strand.prompt)
        self._grow(first + rows, length, self._roomier(length))
        if source is not None and source.place < 0:  # had to go
            source, common = None, 0
        place = self._claim(first, source, common)
        if source is not None and source.place >= 0:
            self.cache.copy(source.place, [place], common)
        self._put(strand, place)
        strand.filled, self._starting[strand] = common, rows

    def promise(self, strand: Strand, rows: int) -> None:
        """A prompt's samples will take so many rows after all."""
        self._starting[strand] = rows

    def place(self, strand: Strand, rows: Sequence[Row]) -> None:
        """A computed prompt's samples join the batch; its strand is the first one's, the others get copies."""
        first, length = len(self), len(strand.prompt)
        self._starting[strand] = len(rows)
        self._grow(first + sum(self._starting.values()), length)
        del self._starting[strand]
        self._bring(strand, first)
        targets = range(first + 1, first + len(rows))
        for place in targets:
            self._vacate(place, range(first, first + len(rows)))
            self._put(replace(strand, drawn=[]), place)
        self.cache.copy(first, targets, length)
        for place, row in enumerate(rows, first):
            row.strand = self._at(place)
            row.strand.drawn = row.tokens
        self.rows += rows

    def abandon(self, strand: Strand) -> None:
        """A prompt is not wanted any more, or could not be computed: what it has may not be finite."""
        self._starting.pop(strand, None)
        if strand.place >= 0:
            self.cache.wipe(strand.place)
        self._release(strand)

    def rest(self, strand: Strand) -> None:
        """Keep a strand that has a place for those who begin alike, as long as nobody needs it."""
        self._starting.pop(strand, None)
        if strand.place < 0 or strand.length < LEAST:
            self._release(strand)
        else:
            self._resting[strand] = None

    # ---------------------------------------------------------------------------------------------- samples
    def lengthen(self, length: int) -> None:
        """The longest row is about to have `length` tokens."""
        self._grow(len(self) + sum(self._starting.values()), length)

    def arrange(self, worth: int) -> list[range]:
        """Move rows of similar length together; which rows these are, see `bands`."""
        bands, moves = arranged([row.position + 1 for row in self.rows], worth)
        if moves:
            length = max(self._at(source).length for source in moves.values())
            self.cache.move([*moves.values()], [*moves], length)
            movers = [(target, self.rows[source], self._at(source)) for target, source in moves.items()]
            for target, row, strand in movers:
                self.rows[target] = row
                self._put(strand, target)
        return bands

    def remove(self, places: Collection[int]) -> list[Row]:
        """Take rows out; the last of those that stay move into their places, all at once. The strands stay, at rest,
        but of spoilt ones nothing stays."""
        gone, left = set(places), len(self) - len(places)
        holes = sorted(place for place in gone if place < left)
        movers = [place for place in range(left, len(self)) if place not in gone]
        removed = [self.rows[place] for place in gone]
        for row in removed:
            if row.spoilt:
                self.cache.wipe(row.strand.place)
        self._swap(holes, movers)
        for hole, mover in zip(holes, movers, strict=True):
            self.rows[hole] = self.rows[mover]
        del self.rows[left:]
        for row in removed:
            (self._release if row.spoilt else self.rest)(row.strand)
        return removed

    def forget(self, unwanted: Callable[[DepotKey | None], bool]) -> None:
        """Drop the strands at rest of policies that are unwanted."""
        for strand in [strand for strand in self._resting if unwanted(strand.policy)]:
            self._release(strand)

    # ----------------------------------------------------------------------------------------------- places
    def _at(self, place: int) -> Strand:
        strand = self._strands[place]
        assert strand is not None, "somebody is there"
        return strand

    def _put(self, strand: Strand, place: int) -> None:
        self._strands[place], strand.place = strand, place

    def _release(self, strand: Strand) -> None:
        self._resting.pop(strand, None)
        if strand.place >= 0:
            self._strands[strand.place] = None
        strand.place = -1

    def _free(self, apart_from: Collection[int] = ()) -> list[int]:
        return [
            place for place in range(len(self), self.cache.rows) if not self._strands[place] and place not in apart_from
        ]

    def _claim(self, first: int, source: Strand | None, common: int) -> int:
        """An empty place, `first` where that can be; where all are taken, the place of a strand at rest: of the source
        if the prompt goes on with most of it, which then need not be copied."""
        free = self._free()
        if free:
            if self._strands[first] in self._resting:
                self._move(self._at(first), free[-1])
            return free[0] if self._strands[first] else first
        victims = [strand for strand in self._resting if strand is not source]
        goes_on = source in self._resting and source is not None and 2 * common >= source.length
        victim = source if source is not None and (goes_on or not victims) else victims[0]
        place = victim.place
        self._release(victim)
        return place

    def _vacate(self, place: int, targets: range) -> None:
        """Whoever is in a place goes elsewhere, but to none of the targets; where all is taken, in the place of what
        rests there for longest."""
        strand = self._strands[place]
        if strand is None:
            return
        free = self._free(targets)
        if free:
            self._move(strand, free[-1])
            return
        victim = next(each for each in self._resting if each is strand or each.place not in targets)
        freed = victim.place
        self._release(victim)
        if victim is not strand:
            self._move(strand, freed)

    def _move(self, strand: Strand, place: int) -> None:
        self.cache.copy(strand.place, [place], strand.length)
        self._strands[strand.place] = None
        self._put(strand, place)

    def _bring(self, strand: Strand, place: int) -> None:
        """Move a strand to a place; who is there takes its place."""
        if strand.place == place:
            return
        if self._strands[place] is None:
            self._move(strand, place)
        else:
            self._swap([strand.place], [place])

    def _swap(self, some: Sequence[int], others: Sequence[int]) -> None:
        if not some:
            return
        pairs = [*zip(some, others, strict=True)]
        moved = [(source, target) for pair in pairs for source, target in (pair, pair[::-1])]
        moved = [(source, target) for source, target in moved if self._at(source).length]
        length = max(self._at(source).length for source, _ in moved)
        self.cache.move([source for source, _ in moved], [target for _, target in moved], length)
        for one, other in pairs:
            mine, theirs = self._at(one), self._at(other)
            self._put(mine, other)
            self._put(theirs, one)

    # ------------------------------------------------------------------------------------------------ growth
    def _roomier(self, length: int) -> int:
        """Rows to have so that no strand at rest has to go, as long as these take little."""
        rows, longest = self.cache.rows + 1, max(self.cache.length, length)
        wanted = self._resting and not self._free()
        return rows if wanted and rows * longest <= self.cache.cache_tokens // RESTING_SHARE else 0

    def _grow(self, needed: int, length: int, roomier: int = 0) -> None:
        """Have a buffer for `needed` rows in use, one of them of `length` tokens. What is at rest stays where the bound
        allows, in the rows that are there already or up to `roomier`."""
        if max(needed, roomier) <= self.cache.rows and length <= self.cache.length:
            return
        used = [strand for strand in self if strand not in self._resting]
        longest = max([length, *(max(strand.length, len(strand.prompt)) for strand in used)])
        most = self.cache.cache_tokens // longest
        wished = max(min(needed + len(self._resting), self.cache.rows), roomier)
        rows, longest = bucket(max(needed, min(wished, most)), longest, self.cache.max_rows, self.cache.cache_tokens)
        stay = [strand for strand in reversed(self._resting) if strand.length <= longest][: rows - needed]
        for strand in [strand for strand in self._resting if strand not in set(stay)]:
            self._release(strand)
        used.sort(key=lambda strand: strand.place)
        placed = [*enumerate(used), *((rows - 1 - index, strand) for index, strand in enumerate(stay))]
        self.cache.rebuild({place: strand.place for place, strand in placed}, rows, longest)
        self._strands = [None] * rows
        for place, strand in placed:
            self._put(strand, place)
