"""The ledger: the record of every operation, from appended to settled.

Implementations: `redis` (the real one) and `memory` (a double for tests); both pass `tests/ledger/`.
A ledger rings bells itself, always after its row is written: it is handed a `Ring` and knows no queue system. Big
bodies and results go to a `Shelf` and leave a reference in the row. Every call may be repeated when its answer was lost
(LedgerUnreachable).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from openrl.domain.errors import OpenRLError, PassingError
from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, TenantId
from openrl.domain.op import Bell, Op, TrainOp
from openrl.domain.outcome import Failure, Record, Result
from openrl.ledger.batches import Batch
from openrl.ledger.census import Life, QueueLoad

Ring = Callable[[Bell], None]

#: Of a line that no live worker listens to: some bells wait there for the worker that comes, the rest come with it.
UNSERVED_SLOTS: Final = 8
#: Unclaimed bells of a tenant in a line, of which it has one for so many slots: enough to keep workers busy, and few to
#: wait behind in a queue. So many at least.
SLOTS_FOR_A_BELL: Final = 16
BELLS_AT_LEAST: Final = 8
ACTIVE_SECONDS: Final = 60.0  #: a run that had no op for so long is no load on its worker
CALLED_OFF_AT_ONCE: Final = 100  #: ops of a batch; others wait for the ledger until all of them are through
POLICY_SECONDS: Final = 86_400.0  #: how long it is known that a policy version was used, or is retired


class Shelf(Protocol):
    """Where bytes too big for a row are kept (the depot fits)."""

    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes:
        """Raises KeyError where there is none."""
        ...

    def delete(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The rules a ledger enforces."""

    hold_seconds: float = 10.0  #: a claim lapses when it is not renewed for so long
    max_attempts: int = 3  #: claims of one op before it is given up
    gap_seconds: float = 120.0  #: how long a run waits for a missing turn
    ring_again_seconds: float = 5.0  #: a runnable op nobody claimed for so long is rung again, then after 2, 4, 8 times
    keep_seconds: float = 24 * 3600.0  #: settled ops stay readable for so long
    inline_bytes: int = 32 * 1024  #: larger bodies and results go to the shelf
    max_waiting_per_tenant: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's exclusive right to a run's state, for as long as the worker tells that it is alive."""

    run: RunId
    epoch: int  #: grows with each new holder; what an older one still writes is refused
    snapshot: DepotKey | None = None  #: folder of the newest snapshot
    snapshot_turn: int = -1  #: the last turn in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Leased runs that had an op of late, by worker."""

    mine: int
    others: tuple[int, ...]  #: of the other live workers that take runs from the same queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Brings:
    """What a worker brings to the line that it listens to."""

    line: str
    slots: int  #: places for ops rung or held; one tenant alone may have half of those of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an op stands in its line."""

    ahead: int  #: ops of its own tenant that may be rung before it, at most
    seconds: float | None = field(compare=False)  #: until it is rung, at the pace of late; None without a basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A claim: the op, and the fencing token that its settlement must show."""

    op: Op
    epoch: int
    attempt: int  #: counted at claim, from 1
    lease: Lease | None = None  #: of the op's run; None for an op of no run
    waited_seconds: float = field(default=0.0, compare=False)  #: from its append to this claim, on the ledger's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did."""

    rung_again: int = 0  #: runnable ops whose bell seemed lost
    taken_back: int = 0  #: claims that had lapsed
    given_up: int = 0  #: ops failed after too many attempts
    gaps_skipped: int = 0
    forgotten: int = 0  #: settled ops past their keeping time
    moved: int = 0  #: ops rung that stood in line
    let_go: int = 0  #: joined ops that waited for nothing any more


class Ledger(Protocol):
    def append(self, op: Op, bell: Bell) -> OpId:
        """Record an op and ring it if its turn has come. Where its bell names a line it is rung while its tenant has
        fewer ops out (rung or held) than the line has free slots, and few of them (`lines.bells_at_once`) unclaimed; it
        stands in line before. Whenever an op is claimed or settles, or slots come, the next ones are rung, in turn
        between tenants, then between owners. A repeat (same `op.once`) answers the first op's id and does nothing
        else. Where it names others in `after` all that begins when the last of them has settled, and until it has
        settled itself theirs stay readable. Raises TurnPassed, TooManyWaiting, WeightsRemoved where it samples a
        retired policy, MemberUnknown, FieldInvalid (too many members), LedgerFull."""
        ...

    def append_all(self, ops: Iterable[tuple[Op, Bell]]) -> None:
        """The same for many, in few round trips. What was appended before an error stays."""
        ...

    def open_batch(self, batch: Batch) -> Batch:
        """Let a batch in: keep room for all its ops among the tenant's unsettled ones. A repeat answers the batch as it
        stands; where ops of it never came they have their room again. Raises NoRoomForBatch, BatchTooLarge."""
        ...

    def close_batch(self, batch: BatchId, error: OpenRLError) -> None:
        """No op of it is to come any more, and those that did and have not settled fail with the error: some with each
        `call_off`, else with the sweeps. Does nothing where the batch is unknown."""
        ...

    def call_off(self, batch: BatchId) -> int:
        """Fail some of the ops of a closed batch, the last ones first; answers how many are left to look at."""
        ...

    def batch(self, batch: BatchId) -> Batch | None:
        """None for one never opened, or expired: some time after its last op settled, all of it at once."""
        ...

    def settled_in(self, batch: BatchId, start: int, most: int) -> list[OpId]:
        """The ops that ended groups of the batch, in the order in which they did, from the `start`th on."""
        ...

    def skip(self, run: RunId, turn: int) -> None:
        """Count a turn that was rejected before it became an op as settled, so that the run goes on. Does nothing
        where that turn holds an op."""
        ...

    def claim(self, op_id: OpId) -> Held | None:
        """Take an op, and the lease of its run, or None: settled, held by another, not its turn, standing in line, its
        run leased by another (who is rung), its run nobody's where a peer has fewer active ones (who is rung, the first
        time), worn out (then it is failed here), unknown."""
        ...

    def renew(self, held: Iterable[Held]) -> frozenset[OpId]:
        """Prolong claims; answers those that are lost."""
        ...

    def stay(self, takes: str = "", brings: Brings | None = None) -> None:
        """This holder is alive: all its leases go on for `hold_seconds`. `takes` names the queue whose fresh runs may
        be placed on it; empty for none. What it `brings` to a line counts for as long; ops are rung into new slots."""
        ...

    def loads(self) -> Loads:
        """How many active runs this holder leases, and its peers."""
        ...

    def release(self, runs: Iterable[RunId]) -> frozenset[RunId]:
        """End this holder's leases of these runs, and ring what waits in them for whoever comes first. Answers those
        released; one of which an op is held is not."""
        ...

    def leave(self) -> None:
        """This holder is going: end all its leases, and ring what waits in them for whoever comes first."""
        ...

    def journal(self, run: RunId) -> list[TrainOp]:
        """The ops that changed the run since its newest snapshot, those that failed in it too, by turn."""
        ...

    def snapshotted(self, lease: Lease, turn: int, key: DepotKey) -> DepotKey | None:
        """The run's state after `turn` is whole in the depot: forget the journal up to there. Answers the key of the
        snapshot before, for deletion. Raises LeaseLost where another holds the run now, TurnUnsettled where `turn`
        has not ended: whoever recovers would apply it again."""
        ...

    def forget(self, run: RunId) -> DepotKey | None:
        """Nobody will go on with the run: end its lease and its journal. Answers the key of its snapshot, for deletion.
        Raises TurnUnsettled where ops still wait for it."""
        ...

    def retire(self, policy: DepotKey, unused_seconds: float | None) -> bool:
        """A policy version is about to be deleted: ops that would sample it are refused from now on. False, and nothing
        done, where an unsettled op writes or samples it, or one did within so many seconds; with None that is no
        reason to keep it."""
        ...

    def done(self, held: Held, result: Result) -> None:
        """Settle with a result; wakes waiters, rings what became runnable. Raises ClaimLost on a stale epoch."""
        ...

    def failed(self, held: Held, failure: Failure, *, applied: bool = True) -> None:
        """Settle with a failure; the run's next turn goes on. `applied=False` for one that says nothing of the request:
        a recovery leaves the op out. Raises ClaimLost on a stale epoch."""
        ...

    def give_back(self, held: Held, why: PassingError | None = None, *, counts: bool = True) -> None:
        """Return an op unsettled and ring it again. `counts=False` (drain) takes the attempt back."""
        ...

    def cancel(self, op_id: OpId, error: OpenRLError) -> None:
        """Fail an unsettled op, held or not; its holder finds out at renewal or settlement."""
        ...

    def read(self, op_id: OpId) -> Record | None:
        """What is known of an op; None for one never recorded or forgotten. A result that its shelf lost reads as a
        failure of ours (BytesLost)."""
        ...

    def statuses(self, op_ids: Iterable[OpId]) -> dict[OpId, str]:
        """Status by op, one round trip; unknown ones are left out."""
        ...

    def place(self, op_id: OpId) -> Place | None:
        """Where an op stands in its line; None for one that does not."""
        ...

    def fullness(self) -> float | None:
        """The share of its memory that is in use, as it was a moment ago; None where that has no bound."""
        ...

    def queues(self) -> list[QueueLoad]:
        """What stands in every queue that has ops or slots, and whose it is; counted in several round trips."""
        ...

    def life(self, op_id: OpId) -> Life | None:
        """What an op has been through; None for one never recorded or forgotten."""
        ...

    def waiting(self, tenant: TenantId) -> int:
        """The tenant's unsettled ops."""
        ...

    def sweep(self) -> Swept:
        """Put right what went quiet: lapsed claims, lost bells, gaps, lines that
        should have moved, joins that wait for nothing, rooms that no op came for, old rows. Any process may call it."""
        ...


class Notices(Protocol):
    """Tells when ops settle, over one reply channel per process; nobody polls."""

    def subscribe(self, op_id: OpId | BatchId, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called once, from any thread, when the op, or the next group of the batch, settles. Does no I/O,
        so it may be called from an event loop; read the ledger *after* it, for an op that has settled already is found
        only seconds later. A wake may be spurious: read the ledger to be sure, and subscribe again. Returns a function
        that unsubscribes."""
        ...

    def close(self) -> None: ...
