"""Puts right what went quiet."""

from bisect import insort
from functools import partial

from openrl.domain.errors import WornOut
from openrl.domain.ids import OpId
from openrl.domain.op import SETTLED, Op, Status, TrainOp
from openrl.domain.outcome import failure_of
from openrl.ledger.batches import Kept
from openrl.ledger.memory.rows import Row, Rows
from openrl.ledger.memory.settle import call_off, settle
from openrl.ledger.port import Swept
from openrl.ledger.turns import Turns


def sweep(rows: Rows) -> Swept:
    rows.policies.sweep()
    rung_again = sum(map(partial(_ring_again, rows), _due(rows, Status.WAITING)))
    for holder in rows.leases.lapsed():
        rows.bury(holder)
    return Swept(
        rung_again=rung_again,
        given_up=sum(map(partial(_give_up, rows), _due(rows, Status.HELD))),
        taken_back=sum(map(partial(_take_back, rows), _due(rows, Status.HELD))),
        gaps_skipped=sum(map(partial(_skip_gap, rows), list(rows.runs.values()))),
        moved=sum(map(rows.move, list(rows.lines))),
        let_go=sum(map(partial(_look_at_batch, rows), list(rows.batches.values()))),
        forgotten=sum(map(partial(_forget, rows), _due(rows, *SETTLED, after=rows.limits.keep_seconds))),
    )


def _due(rows: Rows, *statuses: Status, after: float = 0.0) -> list[Row]:
    due: list[tuple[float, OpId]] = []
    for op_id, row in rows.ops.items():
        if row.status in statuses and row.due is not None and row.due + after <= rows.clock():
            insort(due, (row.due, op_id))
    return [rows.ops[op_id] for _, op_id in due]


def _ring_again(rows: Rows, row: Row) -> bool:
    row.rings += 1
    row.due = rows.clock() + rows.limits.ring_again_seconds * 2 ** min(row.rings, 3)
    rows.to_ring.append(rows.bell(row))
    return True


def _give_up(rows: Rows, row: Row) -> bool:
    if row.attempts < rows.limits.max_attempts:
        return False
    settle(rows, row, failure=failure_of(WornOut(rows.limits.max_attempts)))
    return True


def _take_back(rows: Rows, row: Row) -> bool:
    rows.ready(row.op.id)
    return True


def _skip_gap(rows: Rows, run: Turns) -> bool:
    if not run.leave_gap(rows.clock(), rows.limits.gap_seconds):
        return False
    rows.come_to(run)
    return True


def _look_at_batch(rows: Rows, kept: Kept) -> int:
    """Its places are given up where nothing comes for them, and it expires. No join is ever left behind here."""
    limits, now = rows.limits, rows.clock()
    if kept.last + limits.gap_seconds <= now:
        rows.give_up_places(kept)
    call_off(rows, kept)
    ends = kept.ends(limits.keep_seconds)
    if ends is not None and ends <= now:
        del rows.batches[kept.batch.id]
    return 0


def _forget(rows: Rows, row: Row) -> bool:
    if isinstance(row.op, TrainOp) and row.op.id in rows.runs[row.op.run].journal.values():
        row.due = rows.clock()  # its run has no snapshot yet that covers it
        return False
    if (needed := _needed_until(rows, row.op)) is not None:
        row.due = needed - rows.limits.keep_seconds
        return False
    del rows.ops[row.op.id], rows.once[row.op.once]
    return True


def _needed_until(rows: Rows, op: Op) -> float | None:
    """When an op that is due to be forgotten must be looked at again; None where nobody needs it any more."""
    now, keep_seconds = rows.clock(), rows.limits.keep_seconds
    if op.id in rows.joins.joined:
        return now + keep_seconds
    if (kept := rows.batch_of(op)) is None:
        return None
    ends = kept.ends(keep_seconds)
    until = now + keep_seconds if ends is None else ends
    return until if until > now else None
