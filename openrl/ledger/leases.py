"""Who leases which run, for the ledger in memory: its workers, how much each has, and the newest snapshots.

Knows runs by their ids, and no ops. The ledger that it belongs to calls it with its lock held.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from openrl.domain.errors import LeaseLost
from openrl.domain.ids import DepotKey, RunId, WorkerId
from openrl.ledger.port import ACTIVE_SECONDS, Brings, Lease


@dataclass(slots=True)
class _Leased:
    """What is known of a run, whether it is leased now or not."""

    holder: WorkerId | None = None
    epoch: int = 0
    claimed_at: float = 0.0
    snapshot: DepotKey | None = None
    snapshot_turn: int = -1


class Leases:
    """A worker's leases last as long as the worker: `live_seconds` from when it was last heard of."""

    def __init__(self, clock: Callable[[], float], live_seconds: float) -> None:
        self._clock, self._live_seconds = clock, live_seconds
        self._runs: defaultdict[RunId, _Leased] = defaultdict(_Leased)
        self._until: dict[WorkerId, float] = {}  #: when each worker counts as dead
        self._takers: dict[WorkerId, str] = {}  #: the queue each takes fresh runs from
        self._brought: dict[WorkerId, Brings] = {}

    # -------------------------------------------------------------------------------------------- workers
    def stay(self, worker: WorkerId, takes: str = "", brings: Brings | None = None) -> None:
        """The worker is alive. It takes fresh runs from that queue and brings slots to a line, or does not."""
        self.heard(worker)
        self._takers.pop(worker, None)
        if takes:
            self._takers[worker] = takes
        self._brought.pop(worker, None)
        if brings is not None:
            self._brought[worker] = brings

    def heard(self, worker: WorkerId) -> None:
        self._until[worker] = self._clock() + self._live_seconds

    def lapsed(self) -> list[WorkerId]:
        """Those not heard of for too long."""
        return [worker for worker, until in self._until.items() if until <= self._clock()]

    def bury(self, worker: WorkerId) -> list[RunId]:
        """The worker is gone; answers the runs that are nobody's now."""
        self._until.pop(worker, None)
        self._takers.pop(worker, None)
        self._brought.pop(worker, None)
        runs = [run for run, leased in self._runs.items() if leased.holder == worker]
        for run in runs:
            self.end(run)
        return runs

    def brought_to(self, line: str) -> int:
        """Slots of live workers in that line."""
        now = self._clock()
        return sum(
            brings.slots
            for worker, brings in self._brought.items()
            if brings.line == line and self._until.get(worker, 0.0) > now
        )

    def brought(self) -> dict[str, int]:
        """The same by line, of those to which a live worker brings any."""
        alive = {worker for worker, until in self._until.items() if until > self._clock()}
        lines = {brings.line for worker, brings in self._brought.items() if worker in alive}
        return {line: self.brought_to(line) for line in lines}

    def load(self, worker: WorkerId) -> int:
        """Its runs that had an op of late."""
        since = self._clock() - ACTIVE_SECONDS
        return sum(leased.holder == worker and leased.claimed_at >= since for leased in self._runs.values())

    def peers(self, worker: WorkerId) -> list[WorkerId]:
        """The other live workers that take from the same queue."""
        queue = self._takers.get(worker)
        alive = (other for other, until in self._until.items() if until > self._clock() and other != worker)
        return [other for other in alive if queue is not None and self._takers.get(other) == queue]

    def freer(self, worker: WorkerId) -> WorkerId | None:
        """Of its peers the one with the fewest runs, if these are fewer than its own."""
        freest = min(self.peers(worker), key=self.load, default=None)
        return freest if freest is not None and self.load(freest) < self.load(worker) else None

    # -------------------------------------------------------------------------------------------- runs
    def take(self, run: RunId, worker: WorkerId) -> Lease:
        """The run is the worker's from now on, with a new epoch unless it was already."""
        leased = self._runs[run]
        if leased.holder != worker:
            leased.holder = worker
            leased.epoch += 1
        leased.claimed_at = self._clock()
        self.heard(worker)
        return Lease(run=run, epoch=leased.epoch, snapshot=leased.snapshot, snapshot_turn=leased.snapshot_turn)

    def has(self, worker: WorkerId, run: RunId) -> bool:
        """Whether the run is the worker's; it may count as dead by now."""
        return self._runs[run].holder == worker

    def holder(self, run: RunId) -> WorkerId | None:
        """The live worker whose the run is."""
        holder = self._runs[run].holder
        return holder if holder is not None and self._until.get(holder, 0.0) > self._clock() else None

    def end(self, run: RunId) -> None:
        self._runs[run].holder = None

    def require(self, lease: Lease) -> None:
        """Raises LeaseLost for one that is not the run's newest."""
        if self._runs[lease.run].epoch != lease.epoch:
            raise LeaseLost(lease.run)

    def forget(self, run: RunId) -> DepotKey | None:
        """No lease of the run is good any more, and it has no snapshot; answers the one it had."""
        leased = self._runs[run]
        leased.holder = None
        leased.epoch += 1
        return self.replace_snapshot(run, -1, None)

    # -------------------------------------------------------------------------------------------- snapshots
    def is_snapshot(self, run: RunId, key: DepotKey) -> bool:
        """Whether this is the run's newest."""
        return self._runs[run].snapshot == key

    def replace_snapshot(self, run: RunId, turn: int, key: DepotKey | None) -> DepotKey | None:
        """Answers the one before."""
        leased = self._runs[run]
        before, leased.snapshot, leased.snapshot_turn = leased.snapshot, key, turn
        return before
