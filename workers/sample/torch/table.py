"""The rows of the batch: which sample sits where in the key/value cache. Knows no model.

Rows 0..n-1 are in use; where one leaves, the last one takes its place.
"""

from collections.abc import Collection, Sequence

from torch import Tensor

from workers.sample.torch.cache import SlotCache
from workers.sample.torch.rows import PrefixKey, Row


class Table:
    """Row i of the batch is row i of the cache."""

    def __init__(self, cache: SlotCache) -> None:
        self.cache = cache
        self.rows: list[Row] = []
        self.hidden: list[Tensor] = []  #: of each row's last prompt token, [width], for siblings that start later

    def __len__(self) -> int:
        return len(self.rows)

    def prompts(self) -> dict[PrefixKey, int]:
        """The prompts in the cache, each with a row that holds it."""
        return {row.job.prefix: slot for slot, row in enumerate(self.rows)}

    def longest(self) -> int:
        """Tokens that the longest row may come to hold."""
        return max((row.job.request.cells for row in self.rows), default=0)

    def reserve(self, more: int, length: int) -> None:
        """Make room in the cache for `more` rows of `length` tokens behind those in use."""
        longest = max((row.position for row in self.rows), default=0)
        self.cache.reserve(len(self), len(self) + more, max(longest, length))

    def add(self, rows: Sequence[Row], hidden: Sequence[Tensor]) -> None:
        """Samples whose prompts stand in the cache's next rows, in this order."""
        self.rows += rows
        self.hidden += hidden

    def remove(self, slots: Collection[int]) -> list[Row]:
        """Take rows out; the last of those that stay move into their places, all at once."""
        gone, left = set(slots), len(self) - len(slots)
        holes = sorted(slot for slot in gone if slot < left)
        movers = [slot for slot in range(left, len(self)) if slot not in gone]
        if movers:
            self.cache.move(movers, holes, max(self.rows[slot].position for slot in movers))
        removed = [self.rows[slot] for slot in gone]
        for source, target in zip(movers, holes, strict=True):
            self.rows[target], self.hidden[target] = self.rows[source], self.hidden[source]
        del self.rows[left:], self.hidden[left:]
        return removed
