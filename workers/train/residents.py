"""The runs whose state is in this process: under which lease, up to which turn, and what is not in a snapshot yet.

Knows no engine and no ledger. Whoever applies a turn or reads a run's state holds the run's lock.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from openrl.domain.errors import CallerError
from openrl.domain.ids import DepotKey, RunId
from openrl.domain.outcome import Result
from openrl.ledger.port import Lease

#: Writing a run's snapshots takes at most one part in so many of the time.
SPACING = 10.0


@dataclass(slots=True)
class Resident:
    """A run in memory."""

    lease: Lease
    turn: int  #: the last one applied
    outcome: Result | CallerError | None = None  #: of that turn; None after a recovery
    changed_at: float | None = None  #: when the oldest change that no snapshot has was made; None for none
    writing: bool = False  #: the newest snapshot is on its way to the depot
    snapshot: DepotKey | None = None  #: the newest one that the ledger knows
    used_at: float = 0.0
    write_seconds: float = 0.0  #: what its newest snapshot took

    def applied(self, turn: int, outcome: Result | CallerError, *, changed: bool, now: float) -> None:
        self.turn, self.outcome, self.used_at = turn, outcome, now
        if changed and self.changed_at is None:
            self.changed_at = now

    def due_after(self, snapshot_seconds: float) -> float:
        """How long a change may wait: a state that takes long to write is written more seldom."""
        return max(snapshot_seconds, SPACING * self.write_seconds)

    def saving(self) -> None:
        self.changed_at, self.writing = None, True

    def saved(self, key: DepotKey) -> None:
        self.snapshot, self.writing = key, False

    def not_saved(self, now: float) -> None:
        self.changed_at, self.writing = now, False


@dataclass(slots=True)
class Residents:
    runs: dict[RunId, Resident] = field(default_factory=dict)
    _locks: defaultdict[RunId, "threading.RLock"] = field(default_factory=lambda: defaultdict(threading.RLock))

    def lock(self, run: RunId) -> "threading.RLock":
        """A thread that has it may take it again."""
        return self._locks[run]

    def under(self, lease: Lease) -> Resident | None:
        """The run, if its state here was made under this very lease; an older state may have missed turns."""
        resident = self.runs.get(lease.run)
        return resident if resident is not None and resident.lease.epoch == lease.epoch else None

    def is_outdated(self, lease: Lease) -> bool:
        """Whether the run is here under a later lease."""
        resident = self.runs.get(lease.run)
        return resident is not None and resident.lease.epoch > lease.epoch

    def due(self, now: float, snapshot_seconds: float) -> list[RunId]:
        """Runs with changes older than `snapshot_seconds` (more, where writing takes long), those that waited longest
        first."""
        return [run for at, resident, run in self._waiting() if now - at >= resident.due_after(snapshot_seconds)]

    def changed(self) -> list[RunId]:
        """Runs with changes that no snapshot has, those that waited longest first."""
        return [run for _, _, run in self._waiting()]

    def active(self, now: float, active_seconds: float) -> list[RunId]:
        """Runs used within so long, those that a snapshot has whole first, then the longest unused."""
        runs = [(run, state) for run, state in list(self.runs.items()) if now - state.used_at < active_seconds]
        return [run for run, _ in sorted(runs, key=lambda item: (item[1].changed_at is not None, item[1].used_at))]

    def idle(self, now: float, idle_seconds: float) -> list[RunId]:
        """Runs that nobody used for so long and that a snapshot has whole."""
        return [
            run
            for run, resident in list(self.runs.items())
            if resident.changed_at is None and now - resident.used_at >= idle_seconds
        ]

    def _waiting(self) -> list[tuple[float, Resident, RunId]]:
        """By the time of their oldest change that no snapshot has."""
        found = [
            (resident.changed_at, resident, run)
            for run, resident in list(self.runs.items())
            if resident.changed_at is not None
        ]
        return sorted(found, key=lambda each: each[0])
