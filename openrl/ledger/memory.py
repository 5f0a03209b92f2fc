"""A ledger in memory: a double for tests, with the same rules as `redis` and a clock one can set.

Knows no bytes: ops and results are kept as they are, so nothing ever goes to a shelf. Whose the runs are is in
`leases.py`, how far they have come in `turns.py`, who stands in line in `lines.py`, who waits for whom in
`joins.py`, and what batches come to in `batches.py`.
"""

import time
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from threading import RLock

from openrl.domain.errors import (
    ClaimLost,
    MemberFailed,
    MemberUnknown,
    NoRoomForBatch,
    OpenRLError,
    PassingError,
    TooManyWaiting,
    TurnPassed,
    TurnUnsettled,
    WornOut,
)
from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, TenantId, WorkerId
from openrl.domain.op import SETTLED, Bell, Op, RewardOp, Status, TrainOp, changes_run
from openrl.domain.outcome import Failure, Record, Result, failure_of
from openrl.domain.rollout import Graded, OnFailure
from openrl.ledger.batches import Batch, Kept
from openrl.ledger.census import MEMBERS_TOLD, Census, Life, QueueLoad, waits_seconds
from openrl.ledger.joins import Joins, members_of
from openrl.ledger.leases import Leases
from openrl.ledger.lines import Line
from openrl.ledger.policies import PolicyUse
from openrl.ledger.port import UNSERVED_SLOTS, Brings, Held, Lease, Limits, Loads, Place, Ring, Swept
from openrl.ledger.turns import Turns

CALLED_OFF_AT_ONCE = 100  #: ops of a batch


@dataclass(slots=True)
class _Row:
    op: Op
    bell: Bell
    appended: float
    status: Status = Status.WAITING
    attempts: int = 0
    epoch: int = 0
    settled_by: int | None = None  #: epoch
    rings: int = 0
    due: float | None = None  #: when to ring again, when a hold lapses, or when it settled; None while blocked
    holder: str = ""  #: that has it, or had it as it settled
    claimed: float | None = None
    result: Result | None = None
    failure: Failure | None = None


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
        self._ring, self._limits, self._clock = ring, limits or Limits(), clock
        self._holder = WorkerId(holder)
        self._leases = Leases(clock, self._limits.hold_seconds)
        self._policies = PolicyUse(clock)
        self._rows: dict[OpId, _Row] = {}
        self._once: dict[str, OpId] = {}
        self._runs: defaultdict[RunId, Turns] = defaultdict(Turns)
        self._lines: defaultdict[str, Line] = defaultdict(Line)
        self._joins = Joins()
        self._batches: dict[BatchId, Kept] = {}
        self._waiting: Counter[TenantId] = Counter()
        self._to_ring: list[Bell] = []
        self._lock = RLock()
        self.on_settled: list[Callable[[OpId | BatchId], None]] = []

    def seen_by(self, holder: str) -> "MemoryLedger":
        """The same ledger in the hands of another worker."""
        other = copy(self)
        other._holder = WorkerId(holder)
        return other

    # -------------------------------------------------------------------------------------------- coming in
    def append(self, op: Op, bell: Bell) -> OpId:
        with self._lock:
            if (first := self._once.get(op.once)) is not None:
                return first
            members = self._members(op)
            run = self._runs[op.run] if isinstance(op, TrainOp) else None
            self._admit(op, run)
            self._policies.begin(op)
            self._once[op.once] = op.id
            row = self._rows[op.id] = _Row(op, bell, self._clock())
            self._joins.enter(op.id, members, (each for each in members if self._rows[each].status not in SETTLED))
            failed = next((each for each in members if self._rows[each].status is Status.FAILED), None)
            if failed is not None and self._fails_with(row):
                row.bell = replace(bell, line="")  # which it never comes to
                self._settle(row, failure=self._failure_through(failed))
            elif not isinstance(op, TrainOp):
                self._line_up(row)
            elif run is not None:
                run.add(op.turn, op.id, self._clock())
                self._come_to(run)
        self._ring_all()
        return op.id

    def append_all(self, ops: Iterable[tuple[Op, Bell]]) -> None:
        for op, bell in ops:
            self.append(op, bell)

    def _admit(self, op: Op, run: Turns | None) -> None:
        self._policies.check(op)
        awaited = False
        if run is not None and isinstance(op, TrainOp):
            if run.is_over(op.turn):
                raise TurnPassed(op.run, op.turn)
            awaited = run.is_awaited(op.turn)
        batch = None if isinstance(op, TrainOp) or op.batch is None else self._batches.get(op.batch)
        placed = batch is not None and batch.take_place()
        if not awaited and not placed and self._waiting[op.tenant] >= self._limits.max_waiting_per_tenant:
            raise TooManyWaiting(self._limits.max_waiting_per_tenant)
        self._waiting[op.tenant] += not placed
        if batch is not None:
            batch.note_appended(op.id, self._clock())

    def skip(self, run: RunId, turn: int) -> None:
        with self._lock:
            if turn not in self._runs[run].unsettled:
                self._end(self._runs[run], turn)
        self._ring_all()

    # -------------------------------------------------------------------------------------------- batches
    def open_batch(self, batch: Batch) -> Batch:
        most = self._limits.max_waiting_per_tenant
        with self._lock:
            now = self._clock()
            kept = self._batches.get(batch.id) or Kept(replace(batch, created=now), now)
            waiting, missing = self._waiting[batch.tenant], kept.missing()
            if missing and waiting + missing > most:
                raise NoRoomForBatch(most, waiting, batch.ops)
            self._batches[batch.id], kept.last = kept, now
            kept.reserved += missing
            self._waiting[batch.tenant] += missing
            return kept.batch

    def close_batch(self, batch: BatchId, error: OpenRLError) -> None:
        with self._lock:
            if (kept := self._batches.get(batch)) is not None:
                kept.batch = replace(kept.batch, cancelled=True)
                kept.called_off = kept.called_off or failure_of(error)
                self._give_up_places(kept)

    def call_off(self, batch: BatchId) -> int:
        with self._lock:
            left = self._call_off(self._batches[batch]) if batch in self._batches else 0
        self._ring_all()
        return left

    def _call_off(self, kept: Kept) -> int:
        if kept.called_off is None:
            return 0
        for _ in range(min(CALLED_OFF_AT_ONCE, len(kept.ops))):
            row = self._rows[kept.ops.pop()]
            if row.status not in SETTLED:
                self._settle(row, failure=kept.called_off)
        return len(kept.ops)

    def _give_up_places(self, kept: Kept) -> None:
        self._waiting[kept.batch.tenant] -= kept.reserved
        kept.reserved = 0

    def batch(self, batch: BatchId) -> Batch | None:
        with self._lock:
            return self._batches[batch].batch if batch in self._batches else None

    def settled_in(self, batch: BatchId, start: int, most: int) -> list[OpId]:
        with self._lock:
            return self._batches[batch].order[start : start + most] if batch in self._batches else []

    def _note_settled(self, row: _Row) -> None:
        op = row.op
        if isinstance(op, TrainOp) or op.batch is None or (kept := self._batches.get(op.batch)) is None:
            return
        kept.note_settled(self._clock())
        if isinstance(op, RewardOp):
            error = row.failure.error if row.failure is not None else None
            kept.end_group(op.id, error, row.result.sums if isinstance(row.result, Graded) else None)
            self._tell(op.batch)

    # -------------------------------------------------------------------------------------------- joins
    def _members(self, op: Op) -> tuple[OpId, ...]:
        members = members_of(op)
        for member in members:
            if member not in self._rows or self._rows[member].op.tenant != op.tenant:
                raise MemberUnknown(member)
        return members

    def _fails_with(self, row: _Row) -> bool:
        """Whether the op fails when a member does."""
        return row.op.after is not None and row.op.after.on_failure is OnFailure.FAIL

    def _failure_through(self, member: OpId) -> Failure:
        failure = self._rows[member].failure
        assert failure is not None
        return replace(failure, error=MemberFailed.__name__, message=str(MemberFailed(member, failure.message)))

    def _tell_joined(self, member: _Row) -> None:
        for op_id in self._joins.tell(member.op.id):
            row = self._rows[op_id]
            if row.status in SETTLED:
                continue  # with an earlier one, whose failure it shared
            if member.status is Status.FAILED and self._fails_with(row):
                self._settle(row, failure=self._failure_through(member.op.id))
            elif self._joins.come_free(op_id):
                self._come_free(row)

    def _come_free(self, row: _Row) -> None:
        if isinstance(row.op, TrainOp):
            self._come_to(self._runs[row.op.run])
        else:
            self._line_up(row)

    # -------------------------------------------------------------------------------------------- being worked on
    def claim(self, op_id: OpId) -> Held | None:
        with self._lock:
            held = self._claim(op_id)
        self._ring_all()
        return held

    def _claim(self, op_id: OpId) -> Held | None:
        row = self._rows.get(op_id)
        if row is None or row.status is not Status.WAITING or row.due is None:
            return None
        if row.attempts >= self._limits.max_attempts:
            self._settle(row, failure=failure_of(WornOut(self._limits.max_attempts)))
            return None
        if self._holder_of(row.op) not in (None, self._holder):
            self._to_ring.append(self._bell(row))
            return None
        if (freer := self._freer(row)) is not None:
            self._to_ring.append(row.bell.at(freer))
            return None
        row.status, row.due = Status.HELD, self._clock() + self._limits.hold_seconds
        row.holder, row.claimed = self._holder, self._clock()
        row.attempts += 1
        row.epoch += 1
        if row.bell.line:
            self._lines[row.bell.line].answered(op_id, row.op.tenant)
            self._move(row.bell.line)
        waited = self._clock() - row.appended
        lease = self._leases.take(row.op.run, self._holder) if isinstance(row.op, TrainOp) else None
        return Held(op=row.op, epoch=row.epoch, attempt=row.attempts, lease=lease, waited_seconds=waited)

    def renew(self, held: Iterable[Held]) -> frozenset[OpId]:
        lost = set()
        with self._lock:
            for claim in held:
                if self._holds(claim):
                    self._rows[claim.op.id].due = self._clock() + self._limits.hold_seconds
                else:
                    lost.add(claim.op.id)
        return frozenset(lost)

    def give_back(self, held: Held, why: PassingError | None = None, *, counts: bool = True) -> None:
        with self._lock:
            if not self._holds(held):
                raise ClaimLost(held.op.id)
            self._rows[held.op.id].attempts -= not counts
            self._ready(held.op.id)
        self._ring_all()

    def _holds(self, claim: Held) -> bool:
        row = self._rows.get(claim.op.id)
        return row is not None and row.status is Status.HELD and row.epoch == claim.epoch

    # -------------------------------------------------------------------------------------------- leases of runs
    def stay(self, takes: str = "", brings: Brings | None = None) -> None:
        with self._lock:
            self._leases.stay(self._holder, takes, brings)
            if brings is not None:
                self._move(brings.line)
        self._ring_all()

    def loads(self) -> Loads:
        with self._lock:
            load, peers = self._leases.load, self._leases.peers(self._holder)
            return Loads(mine=load(self._holder), others=tuple(map(load, peers)))

    def release(self, runs: Iterable[RunId]) -> frozenset[RunId]:
        with self._lock:
            released = frozenset(run for run in runs if self._may_release(run))
            for run in released:
                self._leases.end(run)
                self._ready_again(run)
        self._ring_all()
        return released

    def leave(self) -> None:
        with self._lock:
            self._bury(self._holder)
        self._ring_all()

    def journal(self, run: RunId) -> list[TrainOp]:
        with self._lock:
            ops = (self._rows[op_id].op for _, op_id in sorted(self._runs[run].journal.items()))
            return [op for op in ops if isinstance(op, TrainOp)]

    def snapshotted(self, lease: Lease, turn: int, key: DepotKey) -> DepotKey | None:
        with self._lock:
            self._leases.require(lease)
            run = self._runs[lease.run]
            if turn >= run.next:
                raise TurnUnsettled(lease.run, turn)
            if self._leases.is_snapshot(lease.run, key):
                return None
            run.snapshotted(turn)
            return self._leases.replace_snapshot(lease.run, turn, key)

    def forget(self, run: RunId) -> DepotKey | None:
        with self._lock:
            if self._runs[run].unsettled:
                raise TurnUnsettled(run, -1)
            self._runs[run].journal.clear()
            return self._leases.forget(run)

    def retire(self, policy: DepotKey, unused_seconds: float | None) -> bool:
        with self._lock:
            return self._policies.retire(policy, unused_seconds)

    def _may_release(self, run: RunId) -> bool:
        here = self._here(run)
        return self._leases.has(self._holder, run) and (here is None or here.status is not Status.HELD)

    def _bury(self, holder: WorkerId) -> None:
        for run in self._leases.bury(holder):
            self._ready_again(run)

    def _ready_again(self, run: RunId) -> None:
        """The op that rang at the run's holder rings where any worker hears it."""
        here = self._here(run)
        if here is not None and here.status is Status.WAITING:
            self._ready(here.op.id)

    def _freer(self, row: _Row) -> WorkerId | None:
        """Who has fewer runs and should have the op's run, which is nobody's. An op that had to be rung again is for
        whoever hears it."""
        if not isinstance(row.op, TrainOp) or row.rings or self._leases.has(self._holder, row.op.run):
            return None
        return self._leases.freer(self._holder)

    def _holder_of(self, op: Op) -> WorkerId | None:
        return self._leases.holder(op.run) if isinstance(op, TrainOp) else None

    def _bell(self, row: _Row) -> Bell:
        holder = self._holder_of(row.op)
        return row.bell if holder is None else row.bell.at(holder)

    # -------------------------------------------------------------------------------------------- ending
    def done(self, held: Held, result: Result) -> None:
        self._settle_held(held, result=result)

    def failed(self, held: Held, failure: Failure, *, applied: bool = True) -> None:
        self._settle_held(held, failure=failure, applied=applied)

    def cancel(self, op_id: OpId, error: OpenRLError) -> None:
        with self._lock:
            row = self._rows.get(op_id)
            if row is not None and row.status not in SETTLED:
                self._settle(row, failure=failure_of(error))
        self._ring_all()

    def _settle_held(
        self, held: Held, *, result: Result | None = None, failure: Failure | None = None, applied: bool = True
    ) -> None:
        with self._lock:
            row = self._rows.get(held.op.id)
            if row is None or not self._holds(held):
                status = Status.FAILED if result is None else Status.DONE
                if row is not None and (row.settled_by, row.status) == (held.epoch, status):
                    return  # the same settlement again
                raise ClaimLost(held.op.id)
            row.settled_by = held.epoch
            if isinstance(row.op, TrainOp) and applied and changes_run(row.op.action, failed=failure is not None):
                self._runs[row.op.run].journal[row.op.turn] = row.op.id
            self._settle(row, result=result, failure=failure)
        self._ring_all()

    def _settle(self, row: _Row, *, result: Result | None = None, failure: Failure | None = None) -> None:
        op = row.op
        row.status = Status.FAILED if result is None else Status.DONE
        row.result, row.failure, row.due = result, failure, self._clock()
        self._waiting[op.tenant] -= 1
        stood_or_out = op.id not in self._joins.pending
        self._joins.leave(op.id, members_of(op))
        self._policies.end(op)
        if isinstance(op, TrainOp):
            self._end(self._runs[op.run], op.turn)
        elif row.bell.line and stood_or_out:
            self._lines[row.bell.line].leave(op.id, op.tenant, op.owner)
            self._move(row.bell.line)
        self._note_settled(row)
        self._tell(op.id)
        self._tell_joined(row)

    def _tell(self, settled: OpId | BatchId) -> None:
        for tell in self.on_settled:
            tell(settled)

    # -------------------------------------------------------------------------------------------- lines
    def _line_up(self, row: _Row) -> None:
        op, line, now = row.op, row.bell.line, self._clock()
        assert not isinstance(op, TrainOp)
        if op.id in self._joins.pending:
            return
        if not line or self._lines[line].enter(op.id, op.tenant, op.owner, self._slots(line), now):
            self._ready(op.id)

    def _move(self, line: str) -> int:
        moved = list(self._lines[line].move(self._slots(line), self._clock()))
        for op_id in moved:
            self._ready(op_id)
        return len(moved)

    def _slots(self, line: str) -> int:
        return self._leases.brought_to(line) or UNSERVED_SLOTS

    # -------------------------------------------------------------------------------------------- turns
    def _end(self, run: Turns, turn: int) -> None:
        run.end(turn, self._clock())
        self._come_to(run)

    def _come_to(self, run: Turns) -> None:
        """The op of the run's next turn becomes ready, once."""
        if run.here is not None and self._rows[run.here].due is None:
            self._ready(run.here)

    def _here(self, run: RunId) -> _Row | None:
        """The op that the run has come to, if it is there and not settled."""
        op_id = self._runs[run].here
        return None if op_id is None else self._rows[op_id]

    def _ready(self, op_id: OpId) -> None:
        if op_id in self._joins.pending:
            return
        row = self._rows[op_id]
        row.status, row.rings, row.due = Status.WAITING, 0, self._clock() + self._limits.ring_again_seconds
        row.holder = ""
        self._to_ring.append(self._bell(row))

    def _ring_all(self) -> None:
        """Outside the lock, after the row: a bell may be answered before `ring` returns."""
        with self._lock:
            bells = self._to_ring[:]
            self._to_ring.clear()
        for bell in bells:
            self._ring(bell)

    # -------------------------------------------------------------------------------------------- asking
    def read(self, op_id: OpId) -> Record | None:
        with self._lock:
            row = self._rows.get(op_id)
            if row is None:
                return None
            return Record(
                id=op_id,
                tenant=row.op.tenant,
                kind=row.op.action.kind,
                status=row.status,
                attempts=row.attempts,
                result=row.result,
                failure=row.failure,
                queue="" if row.status in SETTLED else row.bell.queue,
                label=row.op.label if isinstance(row.op, RewardOp) else "",
            )

    def statuses(self, op_ids: Iterable[OpId]) -> dict[OpId, str]:
        with self._lock:
            return {op_id: self._rows[op_id].status for op_id in op_ids if op_id in self._rows}

    def place(self, op_id: OpId) -> Place | None:
        with self._lock:
            row = self._rows.get(op_id)
            if row is None or isinstance(row.op, TrainOp) or not row.bell.line:
                return None
            found = self._lines[row.bell.line].place(op_id, row.op.tenant, row.op.owner, self._waiting[row.op.tenant])
            if found is None:
                return None
            ahead, pace = found
            return Place(ahead=ahead, seconds=waits_seconds(ahead, self._clock() - pace.since, pace.rung))

    def queues(self) -> list[QueueLoad]:
        with self._lock:
            census = Census(self._clock(), self._leases.brought())
            for row in self._rows.values():
                if row.status not in SETTLED and not self._waits_for_others(row.op):
                    self._count(row, census)
            for name, line in self._lines.items():
                for tenant, ops, pace in line.waits():
                    census.paced(name, tenant, self._clock() - pace.since, pace.rung)
                    census.of(name, tenant).standing = ops
            return census.told()

    def _count(self, row: _Row, census: Census) -> None:
        queue = row.bell.line or row.bell.queue
        if row.status is Status.HELD:
            census.held(queue, row.op.tenant)
        else:
            census.waits(queue, row.op.tenant, row.appended)

    def _waits_for_others(self, op: Op) -> bool:
        """Those behind one that does in its run, too."""
        first = self._runs[op.run].here if isinstance(op, TrainOp) else op.id
        return first in self._joins.pending

    def life(self, op_id: OpId) -> Life | None:
        with self._lock:
            row = self._rows.get(op_id)
            if row is None:
                return None
            over = row.status in SETTLED
            members = () if over else members_of(row.op)
            rung = not over and row.due is not None
            return Life(
                now=self._clock(),
                appended=row.appended,
                rung_again=row.rings if rung else None,
                holder=row.holder,
                claimed=row.claimed,
                settled=row.due if over else None,
                line="" if over else row.bell.line,
                after=tuple((each, self._rows[each].status) for each in members[:MEMBERS_TOLD]),
                members=len(members),
            )

    def waiting(self, tenant: TenantId) -> int:
        with self._lock:
            return self._waiting[tenant]

    # -------------------------------------------------------------------------------------------- putting right
    def sweep(self) -> Swept:
        with self._lock:
            self._policies.sweep()
            rung_again = sum(map(self._ring_again, self._due(Status.WAITING)))
            for holder in self._leases.lapsed():
                self._bury(holder)
            swept = Swept(
                rung_again=rung_again,
                given_up=sum(map(self._give_up, self._due(Status.HELD))),
                taken_back=sum(map(self._take_back, self._due(Status.HELD))),
                gaps_skipped=sum(map(self._skip_gap, list(self._runs.values()))),
                moved=sum(map(self._move, list(self._lines))),
                let_go=sum(map(self._look_at_batch, list(self._batches.values()))),
                forgotten=sum(map(self._forget, self._due(*SETTLED, after=self._limits.keep_seconds))),
            )
        self._ring_all()
        return swept

    def _due(self, *statuses: Status, after: float = 0.0) -> list[_Row]:
        due: list[tuple[float, OpId]] = []
        for op_id, row in self._rows.items():
            if row.status in statuses and row.due is not None and row.due + after <= self._clock():
                insort(due, (row.due, op_id))
        return [self._rows[op_id] for _, op_id in due]

    def _ring_again(self, row: _Row) -> bool:
        row.rings += 1
        row.due = self._clock() + self._limits.ring_again_seconds * 2 ** min(row.rings, 3)
        self._to_ring.append(self._bell(row))
        return True

    def _give_up(self, row: _Row) -> bool:
        if row.attempts < self._limits.max_attempts:
            return False
        self._settle(row, failure=failure_of(WornOut(self._limits.max_attempts)))
        return True

    def _take_back(self, row: _Row) -> bool:
        self._ready(row.op.id)
        return True

    def _skip_gap(self, run: Turns) -> bool:
        if not run.leave_gap(self._clock(), self._limits.gap_seconds):
            return False
        self._come_to(run)
        return True

    def _forget(self, row: _Row) -> bool:
        if isinstance(row.op, TrainOp) and row.op.id in self._runs[row.op.run].journal.values():
            row.due = self._clock()  # its run has no snapshot yet that covers it
            return False
        if (needed := self._needed_until(row.op)) is not None:
            row.due = needed - self._limits.keep_seconds
            return False
        del self._rows[row.op.id], self._once[row.op.once]
        return True

    def _look_at_batch(self, kept: Kept) -> int:
        """Its places are given up where nothing comes for them, and it expires. No join is ever left behind here."""
        limits, now = self._limits, self._clock()
        if kept.last + limits.gap_seconds <= now:
            self._give_up_places(kept)
        self._call_off(kept)
        ends = kept.ends(limits.keep_seconds)
        if ends is not None and ends <= now:
            del self._batches[kept.batch.id]
        return 0

    def _needed_until(self, op: Op) -> float | None:
        """When an op that is due to be forgotten must be looked at again; None where nobody needs it any more."""
        now, keep_seconds = self._clock(), self._limits.keep_seconds
        if op.id in self._joins.joined:
            return now + keep_seconds
        kept = None if isinstance(op, TrainOp) or op.batch is None else self._batches.get(op.batch)
        if kept is None:
            return None
        ends = kept.ends(keep_seconds)
        until = now + keep_seconds if ends is None else ends
        return until if until > now else None
