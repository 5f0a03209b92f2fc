"""Children at hand: lent to whoever scores an op, and taken back where they may serve again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Child, Nursery

#: A child that has scored so many texts makes room for a fresh one.
MOST_TEXTS: Final = 5_000


class Pool:
    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._lock = threading.Lock()
        self._idle: list[Child] = []

    @contextmanager
    def lent(self, *, reusable: bool) -> Iterator[Child]:
        """A child; it is ended afterwards unless it is at rest again and others may see what was done in it. Raises
        GraderFailed."""
        child = self._idle_one() or self._nursery.fork("score", Limits())
        try:
            yield child
        finally:
            if reusable and child.asked < MOST_TEXTS and child.at_rest:
                with self._lock:
                    self._idle.append(child)
            else:
                child.close()

    def _idle_one(self) -> Child | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                child = self._idle.pop()
            if child.at_rest:
                return child
            child.close()  # it died while nobody needed it

    def close(self) -> None:
        with self._lock:
            children, self._idle = self._idle, []
        for child in children:
            child.close()
