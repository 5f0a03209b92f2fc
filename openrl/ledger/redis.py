"""The ledger in Redis (or Valkey): every call is one script and one round trip.

`rows.lua` tells what lies where. Row first, bell second: a script answers the bells to ring, and they are rung here
when it is through; `sweep` rings again where that never happened. Bytes for the shelf are put there before their row is
written and deleted after.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import redis

from openrl.domain.errors import (
    BytesLost,
    ClaimLost,
    LeaseLost,
    OpenRLError,
    PassingError,
    TurnUnsettled,
    WornOut,
)
from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, TenantId
from openrl.domain.op import Bell, Op, Status, TrainOp, changes_run
from openrl.domain.outcome import Failure, Record, Result, failure_of
from openrl.ledger import codec
from openrl.ledger.batches import Batch, no_room
from openrl.ledger.census import Life, QueueLoad, read_life, take_census, waits_seconds
from openrl.ledger.follow_up import FollowUp
from openrl.ledger.fullness import Fullness
from openrl.ledger.incoming import Incoming
from openrl.ledger.keys import Keys
from openrl.ledger.outage import told_apart
from openrl.ledger.port import (
    ACTIVE_SECONDS,
    CALLED_OFF_AT_ONCE,
    Brings,
    Held,
    Lease,
    Limits,
    Loads,
    Place,
    Ring,
    Shelf,
    Swept,
)
from openrl.ledger.records import read_record, statuses
from openrl.ledger.rows import batch_fields, journaled_op, lease_of, op_of, read_batch, sums_fields
from openrl.ledger.scripts import Scripts
from openrl.ledger.shelving import Shelving
from openrl.ledger.sweeping import sweep

log = logging.getLogger(__name__)


class RedisLedger:
    """A `Ledger`. The client must answer bytes (`decode_responses` off) and may be shared between threads.

    `holder` names this process in the rows it holds. `clock_offset` gives seconds to add to the server's clock, so that
    tests need not sleep."""

    def __init__(
        self,
        client: redis.Redis,
        shelf: Shelf,
        ring: Ring,
        *,
        holder: str,
        limits: Limits,
        prefix: str = "openrl:",
        clock_offset: Callable[[], float] = lambda: 0.0,
    ) -> None:
        assert not client.get_encoder().decode_responses, "rows hold bytes: use a client with decode_responses=False"
        self._client, self._keys = client, Keys(prefix)
        self._holder, self._limits = holder, limits
        self._worn_out = codec.encode(failure_of(WornOut(limits.max_attempts)))
        self._scripts = Scripts(client, prefix, ring_again_seconds=limits.ring_again_seconds, clock_offset=clock_offset)
        self._shelving = Shelving(shelf, limits.inline_bytes)
        self._after = FollowUp(ring, self._shelving)
        self._call, self._follow_up, self._ring_all = self._scripts.call, self._after.do, self._after.ring_all
        self._fullness = Fullness(client)
        self._incoming = Incoming(self._scripts, self._shelving, self._after, limits.max_waiting_per_tenant)

    # -------------------------------------------------------------------------------------------- coming in
    def append(self, op: Op, bell: Bell) -> OpId:
        self._fullness.check()
        return self._incoming.append(op, bell)

    def append_all(self, ops: Iterable[tuple[Op, Bell]]) -> None:
        self._incoming.append_all(ops)

    def skip(self, run: RunId, turn: int) -> None:
        self._ring_all(self._call("skip", run, turn))

    # -------------------------------------------------------------------------------------------- batches
    def open_batch(self, batch: Batch) -> Batch:
        self._fullness.check()
        most = self._limits.max_waiting_per_tenant
        word, fields = self._call("open_batch", most, batch.id, batch.tenant, batch.ops, *batch_fields(batch))
        if word == b"full":
            raise no_room(batch, most, int(fields))
        return read_batch(batch.id, dict(zip(fields[::2], fields[1::2], strict=True)))

    def close_batch(self, batch: BatchId, error: OpenRLError) -> None:
        self._call("close_batch", batch, codec.encode(failure_of(error)))

    def call_off(self, batch: BatchId) -> int:
        left, bells, bodies = self._call("call_off", batch, CALLED_OFF_AT_ONCE)
        self._follow_up(bells, bodies)
        return int(left)

    def batch(self, batch: BatchId) -> Batch | None:
        with told_apart():
            fields = cast(dict[bytes, bytes], self._client.hgetall(self._keys.batch(batch)))
        return read_batch(batch, fields) if fields else None

    def settled_in(self, batch: BatchId, start: int, most: int) -> list[OpId]:
        with told_apart():
            ids = self._client.lrange(f"{self._keys.batch(batch)}:order", start, start + most - 1)
        return [OpId(op_id.decode()) for op_id in cast(list[bytes], ids)]

    # -------------------------------------------------------------------------------------------- being worked on
    def claim(self, op_id: OpId) -> Held | None:
        limits = self._limits
        word, bells, bodies, *claim = self._call(
            "claim", op_id, self._holder, limits.hold_seconds, limits.max_attempts, self._worn_out, ACTIVE_SECONDS
        )
        self._follow_up(bells, bodies)
        if word != b"held":
            return None
        epoch, attempt, row, lease, waited = claim
        *shape, body_at, body = row
        if body_at == b"shelf":
            body = self._fetch_body(op_id)
            if body is None:
                return None
        op = op_of(op_id, shape, body)
        return Held(op=op, epoch=epoch, attempt=attempt, lease=lease_of(op, lease), waited_seconds=float(waited))

    def _fetch_body(self, op_id: OpId) -> bytes | None:
        """The body of an op just claimed, or None where it is gone: because the op was cancelled in this very moment,
        or because the shelf lost it, which ends the op."""
        try:
            return self._shelving.body(op_id)
        except BytesLost as error:
            log.error("%s", error, extra={"action": "claim", "op": op_id})
            self.cancel(op_id, error)
            return None

    def renew(self, held: Iterable[Held]) -> frozenset[OpId]:
        pairs = [part for claim in held for part in (claim.op.id, claim.epoch)]
        if not pairs:
            return frozenset()
        return frozenset(OpId(lost.decode()) for lost in self._call("renew", self._limits.hold_seconds, *pairs))

    def give_back(self, held: Held, why: PassingError | None = None, *, counts: bool = True) -> None:
        word, bells = self._call("give_back", held.op.id, held.epoch, int(counts))
        if word == b"lost":
            raise ClaimLost(held.op.id)
        log.info("given back: %s", why or "no reason given", extra={"action": "give_back", "op": held.op.id})
        self._ring_all(bells)

    # -------------------------------------------------------------------------------------------- leases of runs
    def stay(self, takes: str = "", brings: Brings | None = None) -> None:
        line, slots = ("", 0) if brings is None else (brings.line, brings.slots)
        self._ring_all(self._call("alive", self._holder, self._limits.hold_seconds, takes, line, slots))

    def loads(self) -> Loads:
        mine, *others = self._call("loads", self._holder, ACTIVE_SECONDS)
        return Loads(mine=mine, others=tuple(others))

    def release(self, runs: Iterable[RunId]) -> frozenset[RunId]:
        bells, released = self._call("release", self._holder, *runs)
        self._ring_all(bells)
        return frozenset(RunId(run.decode()) for run in released)

    def leave(self) -> None:
        self._ring_all(self._call("leave", self._holder))

    def journal(self, run: RunId) -> list[TrainOp]:
        answer = self._call("journal", run)
        return [self._journaled(run, answer[at : at + 6]) for at in range(0, len(answer), 6)]

    def _journaled(self, run: RunId, row: Sequence[bytes]) -> TrainOp:
        op_id, *shape, body_at, body = row
        id_ = OpId(op_id.decode())
        return journaled_op(id_, run, shape, self._shelving.body(id_) if body_at == b"shelf" else body)

    def snapshotted(self, lease: Lease, turn: int, key: DepotKey) -> DepotKey | None:
        word, bodies, before = self._call("snapshot", lease.run, lease.epoch, turn, key)
        if word == b"lost":
            raise LeaseLost(lease.run)
        if word == b"early":
            raise TurnUnsettled(lease.run, turn)
        self._follow_up([], bodies)
        return DepotKey(before.decode()) or None

    def forget(self, run: RunId) -> DepotKey | None:
        word, bodies, snapshot = self._call("forget", run)
        if word == b"busy":
            raise TurnUnsettled(run, -1)
        self._follow_up([], bodies)
        return DepotKey(snapshot.decode()) or None

    def retire(self, policy: DepotKey, unused_seconds: float | None) -> bool:
        return bool(self._call("retire", policy, "" if unused_seconds is None else unused_seconds))

    # -------------------------------------------------------------------------------------------- ending
    def done(self, held: Held, result: Result) -> None:
        op, data = held.op, codec.encode(result)
        shelved = self._shelving.put_result(op.id, held.epoch, data)
        place = ("result_at", "shelf") if shelved else ("result_at", "inline", "result", data)
        try:
            self._settle(held, Status.DONE, "result_kind", result.kind, *place, *sums_fields(op, result))
        except ClaimLost:
            if shelved:
                self._shelving.discard_result(op.id, held.epoch)
            raise

    def failed(self, held: Held, failure: Failure, *, applied: bool = True) -> None:
        self._settle(held, Status.FAILED, "failure", codec.encode(failure), applied=applied)

    def cancel(self, op_id: OpId, error: OpenRLError) -> None:
        self._follow_up(*self._call("cancel", op_id, codec.encode(failure_of(error))))

    def _settle(self, held: Held, status: Status, *ending: str | bytes | int, applied: bool = True) -> None:
        again = int(applied and changes_run(held.op.action, failed=status is Status.FAILED))
        word, bells, bodies = self._call("settle", held.op.id, held.epoch, status, again, *ending)
        if word == b"lost":
            raise ClaimLost(held.op.id)
        self._follow_up(bells, bodies)

    # -------------------------------------------------------------------------------------------- asking
    def read(self, op_id: OpId) -> Record | None:
        return read_record(self._client, self._keys, self._shelving, op_id)

    def statuses(self, op_ids: Iterable[OpId]) -> dict[OpId, str]:
        with told_apart():
            return statuses(self._client, self._keys, op_ids)

    def place(self, op_id: OpId) -> Place | None:
        answer = self._call("place", op_id)
        if not answer:
            return None
        ahead, elapsed, rung = answer
        return Place(ahead=ahead, seconds=waits_seconds(ahead, float(elapsed), float(rung)))

    def fullness(self) -> float | None:
        return self._fullness.share()

    def queues(self) -> list[QueueLoad]:
        return take_census(lambda *page: self._call("census", *page))

    def life(self, op_id: OpId) -> Life | None:
        return read_life(self._call("life", op_id))

    def waiting(self, tenant: TenantId) -> int:
        with told_apart():
            return int(cast(bytes | None, self._client.hget(self._keys.tenants, tenant)) or 0)

    # -------------------------------------------------------------------------------------------- putting right
    def sweep(self) -> Swept:
        return sweep(self._scripts, self._shelving, self._after, self._limits, self._worn_out)
