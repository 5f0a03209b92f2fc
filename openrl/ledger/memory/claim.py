"""How a worker takes ops, keeps them and gives them back."""

from openrl.domain.errors import ClaimLost, WornOut
from openrl.domain.ids import OpId, RunId, WorkerId
from openrl.domain.op import Status, TrainOp
from openrl.domain.outcome import failure_of
from openrl.ledger.memory.rows import Row, Rows
from openrl.ledger.memory.settle import settle
from openrl.ledger.port import Held


def claim(rows: Rows, op_id: OpId, holder: WorkerId) -> Held | None:
    row = rows.ops.get(op_id)
    if row is None or row.status is not Status.WAITING or row.due is None:
        return None
    if row.attempts >= rows.limits.max_attempts:
        settle(rows, row, failure=failure_of(WornOut(rows.limits.max_attempts)))
        return None
    if rows.holder_of(row.op) not in (None, holder):
        rows.to_ring.append(rows.bell(row))
        return None
    if (freer := _freer(rows, row, holder)) is not None:
        rows.to_ring.append(row.bell.at(freer))
        return None
    return _take(rows, row, holder)


def _take(rows: Rows, row: Row, holder: WorkerId) -> Held:
    op, now = row.op, rows.clock()
    row.status, row.due = Status.HELD, now + rows.limits.hold_seconds
    row.holder, row.claimed = holder, now
    row.attempts += 1
    row.epoch += 1
    if row.bell.line:
        rows.lines[row.bell.line].answered(op.id, op.tenant)
        rows.move(row.bell.line)
    lease = rows.leases.take(op.run, holder) if isinstance(op, TrainOp) else None
    return Held(op=op, epoch=row.epoch, attempt=row.attempts, lease=lease, waited_seconds=now - row.appended)


def _freer(rows: Rows, row: Row, holder: WorkerId) -> WorkerId | None:
    """Who has fewer runs and should have the op's run, which is nobody's. An op that had to be rung again is for
    whoever hears it."""
    if not isinstance(row.op, TrainOp) or row.rings or rows.leases.has(holder, row.op.run):
        return None
    return rows.leases.freer(holder)


def renew(rows: Rows, claim: Held) -> bool:
    """False where the claim is lost."""
    row = rows.held_by(claim)
    if row is None:
        return False
    row.due = rows.clock() + rows.limits.hold_seconds
    return True


def give_back(rows: Rows, held: Held, *, counts: bool) -> None:
    row = rows.held_by(held)
    if row is None:
        raise ClaimLost(held.op.id)
    row.attempts -= not counts
    rows.ready(held.op.id)


def may_release(rows: Rows, run: RunId, holder: WorkerId) -> bool:
    here = rows.here(run)
    return rows.leases.has(holder, run) and (here is None or here.status is not Status.HELD)
