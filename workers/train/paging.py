"""Brings runs to the device when their ops come, and lets others go so that all fit.

Everything here happens on the threads of the ops, the device's thread goes on meanwhile. Whoever calls about a run
holds its lock (see `residents.py`); a run that another thread has locked is at work and is left alone.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from openrl.domain.ids import RunId
from workers.train.residents import Residents
from workers.train.room import Room
from workers.train.tiers import Budgets, Tier

log = logging.getLogger(__name__)


class State(Protocol):
    """What paging needs to know of a run's state."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def most_bytes(self) -> int: ...


S = TypeVar("S", bound=State)


class Holder(Protocol[S]):
    """What paging needs of a train engine."""

    def is_paged(self, run_id: str, /) -> bool: ...
    def run(self, run_id: str, /) -> S: ...
    def put(self, run_id: str, state: S, /) -> None: ...
    def drop(self, run_id: str, /) -> None: ...
    def to_device(self, run_id: str, /) -> None: ...
    def to_host(self, run_id: str, /) -> int: ...


class Paging(Generic[S]):
    """`page_out` writes a run to the depot and forgets it; it answers whether it did."""

    def __init__(
        self, engine: Holder[S], residents: Residents, budgets: Budgets, page_out: Callable[[RunId], bool]
    ) -> None:
        self._engine, self._residents, self._page_out = engine, residents, page_out
        self._room = Room(budgets, self._move)
        self._came = self._went = 0  #: runs from and to the depot since it was told last

    @contextmanager
    def at_work(self, run: RunId) -> Iterator[None]:
        """Inside, the run stays on the device, if this process has it. Raises Draining."""
        try:
            if self._engine.is_paged(run):
                self._room.take(run, self._engine.run(run).most_bytes)
                self._engine.to_device(run)
            yield
        finally:
            if self._engine.is_paged(run):
                self._room.rest(run, self._engine.run(run).size_bytes)
            else:
                self._room.gone(run)

    def enter(self, run: RunId, state: S) -> None:
        """A run gets this state on the device, in the place of what it had. Inside `at_work`. Raises Draining."""
        self._room.take(run, state.most_bytes)
        self._engine.put(run, state)

    def forget(self, run: RunId) -> None:
        """Drop a run from memory."""
        self._residents.runs.pop(run, None)
        self._engine.drop(run)
        self._room.gone(run)

    def drain(self) -> None:
        """Nobody waits for room any more."""
        self._room.close()

    def came(self) -> None:
        """A run came from the depot."""
        self._came += 1

    def tell(self) -> None:
        """To the log what was paged since the last time, if anything was."""
        came, went, self._came, self._went = self._came, self._went, 0, 0
        if came or went:
            log.info(
                "%d runs from the depot, %d to it; %d in memory, %.0f MB on the device",
                *(came, went, len(self._residents.runs), self._room.used(Tier.DEVICE) / 1e6),
                extra={"action": "page"},
            )

    # ------------------------------------------------------------------------------------------ inside
    def _move(self, run: RunId, to: Tier) -> int | None:
        """The bytes that it takes there; None for a run that is at work after all, or that the depot did not take."""
        lock = self._residents.lock(run)
        if not lock.acquire(blocking=False):
            return None
        try:
            return self._carry(run, to)
        except Exception:
            log.exception("stays in memory", extra={"action": "page_out", "run": run})
            return None
        finally:
            lock.release()

    def _carry(self, run: RunId, to: Tier) -> int | None:
        if to is Tier.HOST:
            return self._engine.to_host(run)
        gone = self._page_out(run)
        self._went += gone
        return 0 if gone else None
