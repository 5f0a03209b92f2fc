"""What the ledger in memory keeps, and how an op becomes ready. Whoever calls holds the ledger's lock."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from openrl.domain.ids import BatchId, OpId, RunId, TenantId, WorkerId
from openrl.domain.op import Bell, Op, Status, TrainOp
from openrl.domain.outcome import Failure, Result
from openrl.ledger.batches import Kept
from openrl.ledger.joins import Joins
from openrl.ledger.leases import Leases
from openrl.ledger.lines import Line
from openrl.ledger.policies import PolicyUse
from openrl.ledger.port import UNSERVED_SLOTS, Held, Limits
from openrl.ledger.turns import Turns


@dataclass(slots=True)
class Row:
    op: Op
    bell: Bell
    appended: float
    status: Status = Status.WAITING
    attempts: int = 0
    epoch: int = 0
    settled_by: int | None = None  #: epoch
    rings: int = 0
    rung: float | None = None  #: when it last became ready
    due: float | None = None  #: when to ring again, when a hold lapses, or when it settled; None while blocked
    holder: str = ""  #: that has it, or had it as it settled
    claimed: float | None = None
    result: Result | None = None
    failure: Failure | None = None


class Rows:
    """Ops by id, and what the ledger knows beside them."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits, self.clock = limits, clock
        self.leases = Leases(clock, limits.hold_seconds)
        self.policies = PolicyUse(clock)
        self.ops: dict[OpId, Row] = {}
        self.once: dict[str, OpId] = {}
        self.runs: defaultdict[RunId, Turns] = defaultdict(Turns)
        self.lines: defaultdict[str, Line] = defaultdict(Line)
        self.joins = Joins()
        self.batches: dict[BatchId, Kept] = {}
        self.waiting: Counter[TenantId] = Counter()
        self.to_ring: list[Bell] = []
        self.on_settled: list[Callable[[OpId | BatchId], None]] = []

    def held_by(self, claim: Held) -> Row | None:
        """The claim's row; None where the claim is lost."""
        row = self.ops.get(claim.op.id)
        return row if row is not None and row.status is Status.HELD and row.epoch == claim.epoch else None

    def batch_of(self, op: Op) -> Kept | None:
        return None if isinstance(op, TrainOp) or op.batch is None else self.batches.get(op.batch)

    def give_up_places(self, kept: Kept) -> None:
        self.waiting[kept.batch.tenant] -= kept.reserved
        kept.reserved = 0

    # -------------------------------------------------------------------------------------------- ready
    def ready(self, op_id: OpId) -> None:
        if op_id in self.joins.pending:
            return
        row = self.ops[op_id]
        row.status, row.rings, row.rung = Status.WAITING, 0, self.clock()
        row.due = row.rung + self.limits.ring_again_seconds
        row.holder = ""
        self.to_ring.append(self.bell(row))

    def bell(self, row: Row) -> Bell:
        holder = self.holder_of(row.op)
        return row.bell if holder is None else row.bell.at(holder)

    def holder_of(self, op: Op) -> WorkerId | None:
        return self.leases.holder(op.run) if isinstance(op, TrainOp) else None

    def tell(self, settled: OpId | BatchId) -> None:
        for tell in self.on_settled:
            tell(settled)

    # -------------------------------------------------------------------------------------------- lines
    def line_up(self, row: Row) -> None:
        op, line, now = row.op, row.bell.line, self.clock()
        assert not isinstance(op, TrainOp)
        if op.id in self.joins.pending:
            return
        if not line or self.lines[line].enter(op.id, op.tenant, op.owner, self.slots(line), now):
            self.ready(op.id)

    def move(self, line: str) -> int:
        moved = list(self.lines[line].move(self.slots(line), self.clock()))
        for op_id in moved:
            self.ready(op_id)
        return len(moved)

    def slots(self, line: str) -> int:
        return self.leases.brought_to(line) or UNSERVED_SLOTS

    # -------------------------------------------------------------------------------------------- turns
    def end_turn(self, run: Turns, turn: int) -> None:
        run.end(turn, self.clock())
        self.come_to(run)

    def come_to(self, run: Turns) -> None:
        """The op of the run's next turn becomes ready, once."""
        if run.here is not None and self.ops[run.here].due is None:
            self.ready(run.here)

    def here(self, run: RunId) -> Row | None:
        """The op that the run has come to, if it is there and not settled."""
        op_id = self.runs[run].here
        return None if op_id is None else self.ops[op_id]

    def come_free(self, row: Row) -> None:
        """The last op that this one waited for has settled."""
        if isinstance(row.op, TrainOp):
            self.come_to(self.runs[row.op.run])
        else:
            self.line_up(row)

    # -------------------------------------------------------------------------------------------- leases
    def ready_again(self, run: RunId) -> None:
        """The op that rang at the run's holder rings where any worker hears it."""
        here = self.here(run)
        if here is not None and here.status is Status.WAITING:
            self.ready(here.op.id)

    def bury(self, holder: WorkerId) -> None:
        for run in self.leases.bury(holder):
            self.ready_again(run)
