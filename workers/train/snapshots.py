"""Keeps runs recoverable: writes their state to the depot in the background and shortens their journals.

A snapshot is the weights, the optimizer and the pending gradient after one turn. It is written some seconds after a
change (later, where it is large), so that many changes share one; what came since is in the journal.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from openrl.depot.port import Depot
from openrl.domain.errors import LeaseLost, TurnUnsettled
from openrl.domain.ids import DepotKey, RunId
from openrl.ledger.port import Ledger
from workers import metrics
from workers.train.residents import Resident, Residents

log = logging.getLogger(__name__)

#: Snapshots written at a time: a disk makes many durable in hardly more time than one.
WRITERS: Final = 8


class Snapshots:
    """`state` answers a run's files; it is called with the run's lock held. `forget` drops a run from memory."""

    def __init__(
        self,
        residents: Residents,
        ledger: Ledger,
        depot: Depot,
        *,
        state: Callable[[RunId], Mapping[str, bytes | memoryview]],
        forget: Callable[[RunId], None],
        every_seconds: float,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._residents, self._ledger, self._depot = residents, ledger, depot
        self._state, self._forget = state, forget
        self._every_seconds, self._idle_seconds, self._clock = every_seconds, idle_seconds, clock

    def tick(self) -> None:
        """Write what is due; let go of what is idle, of the lease too: whoever is freest then may go on with it."""
        self._write_all(self._residents.due(self._clock(), self._every_seconds))
        for run in self._residents.idle(self._clock(), self._idle_seconds):
            self._let_go(run)

    def flush(self) -> None:
        """Write everything that changed."""
        self._write_all(self._residents.changed())

    def _write_all(self, runs: Iterable[RunId]) -> None:
        with ThreadPoolExecutor(WRITERS, "snapshots") as writers:
            list(writers.map(self._try, runs))

    def _try(self, run: RunId) -> None:
        """A run that cannot be written goes to the end of the line and keeps nobody from being written."""
        try:
            self.write(run)
        except Exception:
            log.exception("no snapshot; to be tried again", extra={"action": "snapshot", "run": run})
            if resident := self._residents.runs.get(run):
                self._not_saved(run, resident)

    def write(self, run: RunId) -> None:
        """One snapshot; nothing where the run has not changed, is another worker's by now, or has one on its way: of
        two, the older might come last."""
        with self._residents.lock(run):
            resident = self._residents.runs.get(run)
            if resident is None or resident.changed_at is None or resident.writing:
                return
            started = self._clock()
            files, turn = self._state(run), resident.turn
            resident.saving()
        key = DepotKey(f"snapshots/{uuid.uuid4().hex}")
        try:
            self._depot.put_folder(key, files)
            before = self._ledger.snapshotted(resident.lease, turn, key)
        except LeaseLost:
            log.warning("snapshot refused: the run is another worker's now", extra={"action": "snapshot", "run": run})
            self._drop(run, resident)
            self._depot.delete_folder(key)
        except TurnUnsettled:  # the op's worker thread has yet to write its end down
            self._not_saved(run, resident)
            self._depot.delete_folder(key)
        except Exception:
            self._not_saved(run, resident)
            raise
        else:
            with self._residents.lock(run):
                resident.saved(key)
                resident.write_seconds = self._clock() - started
            metrics.SNAPSHOT.observe(resident.write_seconds)
            if before is not None:
                self._depot.delete_folder(before)

    def _not_saved(self, run: RunId, resident: Resident) -> None:
        with self._residents.lock(run):
            resident.not_saved(self._clock())

    def _drop(self, run: RunId, resident: Resident) -> None:
        with self._residents.lock(run):
            if self._residents.runs.get(run) is resident:
                self._forget(run)

    def _let_go(self, run: RunId) -> None:
        with self._residents.lock(run):
            if run in self._residents.idle(self._clock(), self._idle_seconds) and self._release(run):
                log.info("paged out", extra={"action": "page_out", "run": run})

    def page_out(self, run: RunId) -> bool:
        """Make room: the run leaves memory, written first if it has changed, and its lease ends. Answers whether it
        went: not while an op of it is held or a snapshot of it is being written."""
        with self._residents.lock(run):
            self.write(run)
            resident = self._residents.runs.get(run)
            if resident is None:  # another worker's by now, or left by a recovery that failed
                self._forget(run)
                return True
            if resident.changed_at is not None or resident.writing:
                return False
            if self._release(run):
                return True
            return self._lost(run, resident)

    def _lost(self, run: RunId, resident: Resident) -> bool:
        """Forget a run, whole in its snapshot, that has become another worker's. Answers whether it had."""
        assert resident.snapshot is not None
        try:
            self._ledger.snapshotted(resident.lease, resident.lease.snapshot_turn, resident.snapshot)
        except LeaseLost:
            self._forget(run)
            return True
        return False

    def hand_over(self, run: RunId) -> bool:
        """Let go of a run, so that its next op may go to another worker; not while an op of it is at work. Answers
        whether it went."""
        self.write(run)
        with self._residents.lock(run):
            return self._release(run)

    def _release(self, run: RunId) -> bool:
        if not self._ledger.release([run]):
            return False
        self._forget(run)
        return True
