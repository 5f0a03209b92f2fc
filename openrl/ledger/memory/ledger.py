"""The door of the ledger in memory: one call at a time, and bells outside the lock."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import RLock

from openrl.domain.errors import OpenRLError, PassingError, TurnUnsettled
from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, TenantId, WorkerId
from openrl.domain.op import SETTLED, Bell, Op, TrainOp
from openrl.domain.outcome import Failure, Record, Result, failure_of
from openrl.ledger.batches import Batch
from openrl.ledger.census import Life, QueueLoad
from openrl.ledger.memory import asking
from openrl.ledger.memory.append import append, open_batch
from openrl.ledger.memory.claim import claim, give_back, may_release, renew
from openrl.ledger.memory.rows import Rows
from openrl.ledger.memory.settle import call_off, settle, settle_held
from openrl.ledger.memory.sweep import sweep
from openrl.ledger.port import Brings, Held, Lease, Limits, Loads, Place, Ring, Swept


class MemoryLedger:
    """A `Ledger`. `on_settled` are called with the id of each op as it settles; MemoryNotices adds itself there."""

    def __init__(
        self,
        ring: Ring,
        *,
        holder: str = "here",
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ring, self._holder = ring, WorkerId(holder)
        self._rows = Rows(limits or Limits(), clock)
        self._lock = RLock()
        self.on_settled = self._rows.on_settled

    def seen_by(self, holder: str) -> "MemoryLedger":
        """The same ledger in the hands of another worker."""
        other = copy(self)
        other._holder = WorkerId(holder)
        return other

    @contextmanager
    def _changing(self) -> Iterator[Rows]:
        """Rings when the row is there and the lock is free again: a bell may be answered before `ring` returns."""
        with self._lock:
            yield self._rows
            bells = self._rows.to_ring[:]
            self._rows.to_ring.clear()
        for bell in bells:
            self._ring(bell)

    # -------------------------------------------------------------------------------------------- coming in
    def append(self, op: Op, bell: Bell) -> OpId:
        with self._changing() as rows:
            return append(rows, op, bell)

    def append_all(self, ops: Iterable[tuple[Op, Bell]]) -> None:
        for op, bell in ops:
            self.append(op, bell)

    def skip(self, run: RunId, turn: int) -> None:
        with self._changing() as rows:
            if turn not in rows.runs[run].unsettled:
                rows.end_turn(rows.runs[run], turn)

    # -------------------------------------------------------------------------------------------- batches
    def open_batch(self, batch: Batch) -> Batch:
        with self._lock:
            return open_batch(self._rows, batch)

    def close_batch(self, batch: BatchId, error: OpenRLError) -> None:
        with self._lock:
            if (kept := self._rows.batches.get(batch)) is not None:
                kept.close(failure_of(error))
                self._rows.give_up_places(kept)

    def call_off(self, batch: BatchId) -> int:
        with self._changing() as rows:
            return call_off(rows, rows.batches[batch]) if batch in rows.batches else 0

    def batch(self, batch: BatchId) -> Batch | None:
        with self._lock:
            kept = self._rows.batches.get(batch)
            return None if kept is None else kept.batch

    def settled_in(self, batch: BatchId, start: int, most: int) -> list[OpId]:
        with self._lock:
            kept = self._rows.batches.get(batch)
            return [] if kept is None else kept.order[start : start + most]

    # -------------------------------------------------------------------------------------------- being worked on
    def claim(self, op_id: OpId) -> Held | None:
        with self._changing() as rows:
            return claim(rows, op_id, self._holder)

    def renew(self, held: Iterable[Held]) -> frozenset[OpId]:
        with self._lock:
            return frozenset(claim.op.id for claim in held if not renew(self._rows, claim))

    def give_back(self, held: Held, why: PassingError | None = None, *, counts: bool = True) -> None:
        with self._changing() as rows:
            give_back(rows, held, counts=counts)

    # -------------------------------------------------------------------------------------------- leases of runs
    def stay(self, takes: str = "", brings: Brings | None = None) -> None:
        with self._changing() as rows:
            rows.leases.stay(self._holder, takes, brings)
            if brings is not None:
                rows.move(brings.line)

    def loads(self) -> Loads:
        with self._lock:
            leases = self._rows.leases
            others = map(leases.load, leases.peers(self._holder))
            return Loads(mine=leases.load(self._holder), others=tuple(others))

    def release(self, runs: Iterable[RunId]) -> frozenset[RunId]:
        with self._changing() as rows:
            released = frozenset(run for run in runs if may_release(rows, run, self._holder))
            for run in released:
                rows.leases.end(run)
                rows.ready_again(run)
            return released

    def leave(self) -> None:
        with self._changing() as rows:
            rows.bury(self._holder)

    def journal(self, run: RunId) -> list[TrainOp]:
        with self._lock:
            ops = (self._rows.ops[op_id].op for _, op_id in sorted(self._rows.runs[run].journal.items()))
            return [op for op in ops if isinstance(op, TrainOp)]

    def snapshotted(self, lease: Lease, turn: int, key: DepotKey) -> DepotKey | None:
        with self._lock:
            leases, run = self._rows.leases, self._rows.runs[lease.run]
            leases.require(lease)
            if turn >= run.next:
                raise TurnUnsettled(lease.run, turn)
            if leases.is_snapshot(lease.run, key):
                return None
            run.snapshotted(turn)
            return leases.replace_snapshot(lease.run, turn, key)

    def forget(self, run: RunId) -> DepotKey | None:
        with self._lock:
            turns = self._rows.runs[run]
            if turns.unsettled:
                raise TurnUnsettled(run, -1)
            turns.journal.clear()
            return self._rows.leases.forget(run)

    def retire(self, policy: DepotKey, unused_seconds: float | None) -> bool:
        with self._lock:
            return self._rows.policies.retire(policy, unused_seconds)

    # -------------------------------------------------------------------------------------------- ending
    def done(self, held: Held, result: Result) -> None:
        with self._changing() as rows:
            settle_held(rows, held, result=result)

    def failed(self, held: Held, failure: Failure, *, applied: bool = True) -> None:
        with self._changing() as rows:
            settle_held(rows, held, failure=failure, applied=applied)

    def cancel(self, op_id: OpId, error: OpenRLError) -> None:
        with self._changing() as rows:
            row = rows.ops.get(op_id)
            if row is not None and row.status not in SETTLED:
                settle(rows, row, failure=failure_of(error))

    # -------------------------------------------------------------------------------------------- asking
    def read(self, op_id: OpId) -> Record | None:
        with self._lock:
            return asking.read(self._rows, op_id)

    def statuses(self, op_ids: Iterable[OpId]) -> dict[OpId, str]:
        with self._lock:
            return {op_id: self._rows.ops[op_id].status for op_id in op_ids if op_id in self._rows.ops}

    def place(self, op_id: OpId) -> Place | None:
        with self._lock:
            return asking.place(self._rows, op_id)

    def fullness(self) -> float | None:
        return None

    def queues(self) -> list[QueueLoad]:
        with self._lock:
            return asking.queues(self._rows)

    def life(self, op_id: OpId) -> Life | None:
        with self._lock:
            return asking.life(self._rows, op_id)

    def waiting(self, tenant: TenantId) -> int:
        with self._lock:
            return self._rows.waiting[tenant]

    # -------------------------------------------------------------------------------------------- putting right
    def sweep(self) -> Swept:
        with self._changing() as rows:
            return sweep(rows)
