"""Who has the seat for a full run next: a run that nobody used for a minute gives way to one that asks for its place.

A new run is told at once where the seat is in use; one that was here before waits, for its client was promised it.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from openrl.domain.errors import Draining, FullRunTaken
from openrl.domain.ids import RunId
from openrl.ledger.port import ACTIVE_SECONDS
from workers.train.residents import Residents
from workers.train.seat import Seat
from workers.train.snapshots import Snapshots

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1


class Succession:
    def __init__(self, seat: Seat, residents: Residents, clock: Callable[[], float] = time.monotonic) -> None:
        self._seat, self._residents, self._clock = seat, residents, clock
        self._wanted = self._draining = False

    def ask(self, run: RunId, *, patient: bool) -> None:
        """Wait until the seat is kept for the run. Raises FullRunTaken where another uses it and this one is not
        `patient`, Draining."""
        looked = Event()
        while not self._seat.reserve(run):
            if self._draining:
                raise Draining
            if not patient and self._in_use():
                raise FullRunTaken
            self._wanted = True
            looked.wait(LOOK_SECONDS)

    def drain(self) -> None:
        self._draining = True

    def tick(self, snapshots: Snapshots) -> None:
        """The seat's run leaves if its place is wanted and nobody uses it."""
        holder = self._seat.holder
        if not self._wanted or holder is None:
            return
        with self._unused(RunId(holder)) as unused:
            self._wanted = self._wanted and not unused  # who still waits asks again
            if unused and snapshots.page_out(RunId(holder)):
                log.info("gave its seat up", extra={"action": "hand_over", "run": holder})

    def _in_use(self) -> bool:
        holder = self._seat.holder
        if holder is None:
            return False
        with self._unused(RunId(holder)) as unused:
            return not unused

    @contextmanager
    def _unused(self, run: RunId) -> Iterator[bool]:
        """Whether nobody uses the run; it stays so inside."""
        lock = self._residents.lock(run)
        if not lock.acquire(blocking=False):  # an op of it, or its recovery, is at work
            yield False
            return
        try:
            resident = self._residents.runs.get(run)
            yield resident is None or self._clock() - resident.used_at >= ACTIVE_SECONDS
        finally:
            lock.release()
