"""What the ledger tells of ops and queues."""

from openrl.domain.ids import OpId
from openrl.domain.op import SETTLED, Op, RewardOp, Status, TrainOp
from openrl.domain.outcome import Record
from openrl.ledger.census import MEMBERS_TOLD, Census, Life, QueueLoad, waits_seconds
from openrl.ledger.joins import members_of
from openrl.ledger.memory.rows import Row, Rows
from openrl.ledger.port import Place


def read(rows: Rows, op_id: OpId) -> Record | None:
    row = rows.ops.get(op_id)
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


def place(rows: Rows, op_id: OpId) -> Place | None:
    row = rows.ops.get(op_id)
    if row is None or isinstance(row.op, TrainOp) or not row.bell.line:
        return None
    found = rows.lines[row.bell.line].place(op_id, row.op.tenant, row.op.owner, rows.waiting[row.op.tenant])
    if found is None:
        return None
    ahead, pace = found
    return Place(ahead=ahead, seconds=waits_seconds(ahead, rows.clock() - pace.since, pace.rung))


def queues(rows: Rows) -> list[QueueLoad]:
    census = Census(rows.clock(), rows.leases.brought())
    for row in rows.ops.values():
        if row.status not in SETTLED and not _waits_for_others(rows, row.op):
            _count(row, census)
    for name, line in rows.lines.items():
        for tenant, ops, pace in line.waits():
            census.paced(name, tenant, rows.clock() - pace.since, pace.rung)
            census.of(name, tenant).standing = ops
    return census.told()


def _count(row: Row, census: Census) -> None:
    queue = row.bell.line or row.bell.queue
    if row.status is Status.HELD:
        census.held(queue, row.op.tenant)
    else:
        census.waits(queue, row.op.tenant, row.appended)


def _waits_for_others(rows: Rows, op: Op) -> bool:
    """Those behind one that does in its run, too."""
    first = rows.runs[op.run].here if isinstance(op, TrainOp) else op.id
    return first in rows.joins.pending


def life(rows: Rows, op_id: OpId) -> Life | None:
    row = rows.ops.get(op_id)
    if row is None:
        return None
    over, members = row.status in SETTLED, members_of(row.op)
    return Life(
        now=rows.clock(),
        appended=row.appended,
        rung=row.rung,
        rung_again=None if row.rung is None else row.rings,
        holder=row.holder,
        claimed=row.claimed,
        settled=row.due if over else None,
        line="" if over else row.bell.line,
        queue=row.bell.queue,
        after=tuple((each, _status(rows, each)) for each in members[:MEMBERS_TOLD]),
        members=len(members),
    )


def _status(rows: Rows, op_id: OpId) -> str:
    """Empty for an op that is forgotten."""
    return rows.ops[op_id].status if op_id in rows.ops else ""
