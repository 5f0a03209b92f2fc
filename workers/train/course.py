"""The course of a pack through the device's memory: planned to fit, and carried on where it does not."""

from collections.abc import Collection, Iterator, Sequence

from workers.train import exhaustion
from workers.train.memory import Member, Memory, kept_bytes
from workers.train.pack import Pack
from workers.train.packing import Pass, Row


class Course:
    """All passes of one pack."""

    def __init__(self, memory: Memory, pack: Pack, members: Sequence[Member], pack_tokens: int) -> None:
        self._memory, self._pack, self._members, self._pack_tokens = memory, pack, members, pack_tokens
        self._kept = sum(kept_bytes(each) for each in members)
        self._failures = 0
        self.train = pack.train

    def finish(self) -> dict[int, Row]:
        """Runs everything. By batch: the row that memory does not hold; such a batch is unfinished."""
        lost = exhaustion.finish(self, self._plan(self._pack.rows), self._replan)
        if not self._failures:
            self._memory.budget.pack_ended()
        return lost

    def run(self, one: Pass) -> bool:
        """False where memory ended."""
        if not self._pack.run(one):
            return False
        self._memory.counts.passed(recomputed=one.recompute)
        return True

    def forget(self, batches: Collection[int]) -> None:
        self._pack.forget(batches)

    def _plan(self, rows: Collection[Row]) -> Iterator[Pass]:
        room = self._memory.budget.room(held=self._kept)
        return self._pack.passes(rows, self._pack_tokens, self._memory.holds(self._members, room))

    def _replan(self, failed: Pass, rows: Sequence[Row]) -> Iterator[Pass]:
        self._failures += 1
        needed = self._memory.need(self._members, self._pack.load(failed), recompute=failed.recompute)
        self._memory.relieve(self._kept + needed)
        return self._plan(rows)
