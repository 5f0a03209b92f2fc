"""How ops end, and what follows: their runs and lines move on, and those that waited for them."""

from dataclasses import replace

from openrl.domain.errors import ClaimLost, MemberFailed
from openrl.domain.ids import OpId
from openrl.domain.op import SETTLED, RewardOp, Status, TrainOp, changes_run
from openrl.domain.outcome import Failure, Result
from openrl.domain.rollout import Graded, OnFailure
from openrl.ledger.batches import Kept
from openrl.ledger.joins import members_of
from openrl.ledger.memory.rows import Row, Rows
from openrl.ledger.port import CALLED_OFF_AT_ONCE, Held


def settle_held(
    rows: Rows, held: Held, *, result: Result | None = None, failure: Failure | None = None, applied: bool = True
) -> None:
    row = rows.held_by(held)
    if row is None:
        if _settled_so(rows, held, Status.FAILED if result is None else Status.DONE):
            return
        raise ClaimLost(held.op.id)
    row.settled_by = held.epoch
    if isinstance(row.op, TrainOp) and applied and changes_run(row.op.action, failed=failure is not None):
        rows.runs[row.op.run].journal[row.op.turn] = row.op.id
    settle(rows, row, result=result, failure=failure)


def _settled_so(rows: Rows, held: Held, status: Status) -> bool:
    """Whether this very claim settled its op before, to the same end."""
    row = rows.ops.get(held.op.id)
    return row is not None and (row.settled_by, row.status) == (held.epoch, status)


def settle(rows: Rows, row: Row, *, result: Result | None = None, failure: Failure | None = None) -> None:
    op = row.op
    row.status = Status.FAILED if result is None else Status.DONE
    row.result, row.failure, row.due = result, failure, rows.clock()
    rows.waiting[op.tenant] -= 1
    stood_or_out = op.id not in rows.joins.pending
    rows.joins.leave(op.id, members_of(op))
    rows.policies.end(op)
    if isinstance(op, TrainOp):
        rows.end_turn(rows.runs[op.run], op.turn)
    elif row.bell.line and stood_or_out:
        rows.lines[row.bell.line].leave(op.id, op.tenant, op.owner)
        rows.move(row.bell.line)
    _note_settled(rows, row)
    rows.tell(op.id)
    _tell_joined(rows, row)


def call_off(rows: Rows, kept: Kept) -> int:
    """End some ops of a closed batch, the last ones first; answers how many are left to look at."""
    if kept.called_off is None:
        return 0
    for _ in range(min(CALLED_OFF_AT_ONCE, len(kept.ops))):
        row = rows.ops[kept.ops.pop()]
        if row.status not in SETTLED:
            settle(rows, row, failure=kept.called_off)
    return len(kept.ops)


def _note_settled(rows: Rows, row: Row) -> None:
    if (kept := rows.batch_of(row.op)) is None:
        return
    kept.note_settled(rows.clock())
    if isinstance(row.op, RewardOp):
        error = row.failure.error if row.failure is not None else None
        kept.end_group(row.op.id, error, row.result.sums if isinstance(row.result, Graded) else None)
        rows.tell(kept.batch.id)


def _tell_joined(rows: Rows, member: Row) -> None:
    for op_id in rows.joins.tell(member.op.id):
        row = rows.ops[op_id]
        if row.status in SETTLED:
            continue  # with an earlier one, whose failure it shared
        if member.status is Status.FAILED and fails_with(row):
            settle(rows, row, failure=failure_through(rows, member.op.id))
        elif rows.joins.come_free(op_id):
            rows.come_free(row)


def fails_with(row: Row) -> bool:
    """Whether the op fails when a member does."""
    return row.op.after is not None and row.op.after.on_failure is OnFailure.FAIL


def failure_through(rows: Rows, member: OpId) -> Failure:
    failure = rows.ops[member].failure
    assert failure is not None
    return replace(failure, error=MemberFailed.__name__, message=str(MemberFailed(member, failure.message)))
