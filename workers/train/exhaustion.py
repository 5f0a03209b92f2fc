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


#: Plans the rows that nobody has tried yet once more, now that this pass has run out.
Replan = Callable[[Pass, Sequence[Row]], Iterable[Pass]]


def finish(work: Work, passes: Iterable[Pass], replan: Replan) -> dict[int, Row]:
    """Runs all passes. By batch: the row that does not fit even alone; such a batch is left unfinished.

    A failed pass may have added a part of its gradients to those of earlier passes, and one cannot be told from the
    other. So its batches are forgotten: it runs again in halves, and those rows of theirs that were done run again in
    the passes that held them. A pass that was tried only ever gets smaller, so there is an end.
    """
    fresh, tried, done = deque(passes), deque[Pass](), list[Pass]()
    lost: dict[int, Row] = {}
    while tried or fresh:
        one = (tried or fresh).popleft()
        if work.run(one):
            done.append(one)
            continue
        touched = {row.batch for row in one.rows}
        work.forget(touched)
        parts = halves(one, train=work.train)
        if not parts:
            lost[one.rows[0].batch] = one.rows[0]
        again = _only(done, touched)
        done = _only(done, {row.batch for each in done for row in each.rows} - touched)
        tried = deque(_without([*parts, *tried, *again], lost))
        fresh = deque(replan(one, [row for each in _without(fresh, lost) for row in each.rows]))
    return lost


def _only(passes: Iterable[Pass], batches: Collection[int]) -> list[Pass]:
    """What these passes hold of some batches."""
    kept = [(each, [row for row in each.rows if row.batch in batches]) for each in passes]
    return [Pass(rows, each.folded and len(rows) > 1, each.recompute) for each, rows in kept if rows]


def _without(passes: Iterable[Pass], batches: Collection[int]) -> list[Pass]:
    passes = list(passes)
    return _only(passes, {row.batch for each in passes for row in each.rows}.difference(batches))
