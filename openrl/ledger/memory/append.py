"""How ops and batches of them come in."""

from dataclasses import replace

from openrl.domain.errors import MemberUnknown, TooManyWaiting, TurnPassed
from openrl.domain.ids import OpId
from openrl.domain.op import SETTLED, Bell, Op, Status, TrainOp
from openrl.ledger.batches import Batch, Kept, no_room
from openrl.ledger.joins import members_of
from openrl.ledger.memory.rows import Row, Rows
from openrl.ledger.memory.settle import fails_with, failure_through, settle
from openrl.ledger.turns import Turns


def append(rows: Rows, op: Op, bell: Bell) -> OpId:
    if (first := rows.once.get(op.once)) is not None:
        return first
    members = _members(rows, op)
    _admit(rows, op)
    rows.policies.begin(op)
    rows.once[op.once] = op.id
    row = rows.ops[op.id] = Row(op, bell, rows.clock())
    rows.joins.enter(op.id, members, (each for each in members if rows.ops[each].status not in SETTLED))
    failed = next((each for each in members if rows.ops[each].status is Status.FAILED), None)
    if failed is not None and fails_with(row):
        row.bell = replace(bell, line="")  # which it never comes to
        settle(rows, row, failure=failure_through(rows, failed))
    elif isinstance(op, TrainOp):
        run = rows.runs[op.run]
        run.add(op.turn, op.id, rows.clock())
        rows.come_to(run)
    else:
        rows.line_up(row)
    return op.id


def _members(rows: Rows, op: Op) -> tuple[OpId, ...]:
    members = members_of(op)
    for member in members:
        if member not in rows.ops or rows.ops[member].op.tenant != op.tenant:
            raise MemberUnknown(member)
    return members


def _admit(rows: Rows, op: Op) -> None:
    rows.policies.check(op)
    awaited = isinstance(op, TrainOp) and _is_awaited(rows.runs[op.run], op)
    batch, most = rows.batch_of(op), rows.limits.max_waiting_per_tenant
    placed = batch is not None and batch.take_place()
    if not awaited and not placed and rows.waiting[op.tenant] >= most:
        raise TooManyWaiting(most)
    rows.waiting[op.tenant] += not placed
    if batch is not None:
        batch.note_appended(op.id, rows.clock())


def _is_awaited(run: Turns, op: TrainOp) -> bool:
    if run.is_over(op.turn):
        raise TurnPassed(op.run, op.turn)
    return run.is_awaited(op.turn)


def open_batch(rows: Rows, batch: Batch) -> Batch:
    most, now = rows.limits.max_waiting_per_tenant, rows.clock()
    kept = rows.batches.get(batch.id) or Kept(replace(batch, created=now), now)
    waiting, missing = rows.waiting[batch.tenant], kept.missing()
    if missing and waiting + missing > most:
        raise no_room(batch, most, waiting)
    rows.batches[batch.id], kept.last = kept, now
    kept.reserved += missing
    rows.waiting[batch.tenant] += missing
    return kept.batch
