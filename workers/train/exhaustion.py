"""What happens when a pass runs out of memory: it is tried again in parts, and the batches it touched from their start.

Knows neither tensors nor devices.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from workers.train.packing import Pass, Row, halves


class Work(Protocol):
    """What passes are run on."""

    train: bool

    def run(self, one: Pass, /) -> bool:
        """False where memory ended; then anything may have been added to its batches, or nothing."""
        ...

    def forget(self, batches: Collection[int], /) -> None:
        """Everything that passes have brought these batches so far."""
        ...


#: Plans the rows that wait once more, now that this pass has run out.
Replan = Callable[[Pass, Sequence[Row]], Iterable[Pass]]


def finish(work: Work, passes: Iterable[Pass], replan: Replan) -> dict[int, Row]:
    """Runs all passes. By batch: the row that does not fit even alone; such a batch is left unfinished.

    A failed pass may have added a part of its gradients to those of earlier passes, and one cannot be told from the
    other. So its batches are forgotten and their rows run again, in the halves of the pass or planned anew.
    """
    waiting, done = deque(passes), list[Row]()
    lost: dict[int, Row] = {}
    while waiting:
        one = waiting.popleft()
        if work.run(one):
            done += one.rows
            continue
        touched = {row.batch for row in one.rows}
        work.forget(touched)
        parts = halves(one, train=work.train)
        if not parts:
            lost[one.rows[0].batch] = one.rows[0]
        rest = [row for each in waiting for row in each.rows] + [row for row in done if row.batch in touched]
        done = [row for row in done if row.batch not in touched]
        waiting = deque([*parts, *replan(one, [row for row in rest if row.batch not in lost])])
    return lost
