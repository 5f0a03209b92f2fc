"""The ledger in Redis (or Valkey): every call is one script and one round trip, atomic on the server's own clock.

`rows.lua` tells what lies where. Row first, bell second: a script answers the bells to ring, and they are rung here
when it is through; `sweep` rings again where that never happened. Bytes for the shelf are put there before their row is
written and deleted after. Scripts make up keys from the prefix, so a cluster needs a prefix with a `{hash tag}`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import resources
from itertools import islice
from typing import Any, Final, cast

import redis

from openrl.domain.errors import (
    BytesLost,
    ClaimLost,
    LeaseLost,
    MemberUnknown,
    NoRoomForBatch,
    OpenRLError,
    PassingError,
    TooManyWaiting,
    TurnPassed,
    TurnUnsettled,
    WeightsRemoved,
    WornOut,
)
from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, TenantId, WorkerId
from openrl.domain.op import Bell, Op, SampleOp, Status, TrainAction, TrainOp, changes_run, policy_of
from openrl.domain.outcome import Failure, Record, Result, failure_of
from openrl.ledger import codec
from openrl.ledger.batches import Batch
from openrl.ledger.census import MEMBERS_TOLD, Life, QueueLoad, read_life, take_census, waits_seconds
from openrl.ledger.keys import Keys, body_key, result_key
from openrl.ledger.outage import told_apart
from openrl.ledger.port import (
    ACTIVE_SECONDS,
    BELLS_AT_ONCE,
    POLICY_SECONDS,
    UNSERVED_SLOTS,
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
from openrl.ledger.rows import (
    batch_fields,
    batch_of,
    join_field,
    lease_of,
    op_of,
    read_batch,
    shape_fields,
    sums_fields,
    turn_fields,
)

log = logging.getLogger(__name__)

SWEEP_AT_MOST: Final = 200  #: ops or runs of each kind that one sweep puts right
MEMBERS_AT_MOST: Final = 10_000  #: of joins, that one sweep looks at
CALLED_OFF_AT_ONCE: Final = 100  #: ops of a batch: others wait until all of them are through
PIPED: Final = 50  #: calls in one round trip, where there are many: others wait until all of them are through
_READ_FIELDS: Final = (
    "tenant", "kind", "status", "attempts", "result_at", "result_kind", "result", "failure", "settled_by", "bell",
    "label",
)  # fmt: skip


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
        self._client, self._shelf, self._ring = client, shelf, ring
        self._holder, self._limits = holder, limits
        self._keys, self._clock_offset = Keys(prefix), clock_offset
        self._worn_out = codec.encode(failure_of(WornOut(limits.max_attempts)))
        self._scripts = _scripts(client)

    # -------------------------------------------------------------------------------------------- coming in
    def append(self, op: Op, bell: Bell) -> OpId:
        body = self._shelved(op)
        return self._appended(op, body is None, self._call("append", *self._append_args(op, bell, body)))

    def append_all(self, ops: Iterable[tuple[Op, Bell]]) -> None:
        coming = iter(ops)
        while some := list(islice(coming, PIPED)):
            bodies = [self._shelved(op) for op, _ in some]
            calls = [self._append_args(op, bell, body) for (op, bell), body in zip(some, bodies, strict=True)]
            for (op, _), body, answer in zip(some, bodies, self._call_all("append", calls), strict=True):
                self._appended(op, body is None, answer)

    def _shelved(self, op: Op) -> bytes | None:
        """The body for the op's row, or None where it is on the shelf."""
        body = codec.encode(op.action)
        if len(body) <= self._limits.inline_bytes:
            return body
        self._shelf.put(body_key(op.id), body)
        return None

    def _append_args(self, op: Op, bell: Bell, body: bytes | None) -> tuple[Any, ...]:
        policy = policy_of(op)
        needs = ("policy", policy) if policy is not None else ()
        place = ("body_at", "shelf") if body is None else ("body_at", "inline", "body", body)
        owner = "" if isinstance(op, TrainOp) else op.owner
        return (
            self._limits.max_waiting_per_tenant, op.id, op.once, op.tenant, *turn_fields(op), bell.line, owner,
            policy or "", join_field(op), batch_of(op), "kind", op.action.kind, "bell", codec.encode(bell),
            *shape_fields(op), *needs, *place,
        )  # fmt: skip

    def _appended(self, op: Op, by_reference: bool, answer: Sequence[Any]) -> OpId:
        word, first, status, bells, bodies = answer
        first_id = OpId(first.decode())
        if by_reference and word != b"new" and not (first_id == op.id and status in (b"waiting", b"held")):
            self._discard(body_key(op.id))
        if word == b"passed" and isinstance(op, TrainOp):
            raise TurnPassed(op.run, op.turn)
        if word == b"retired" and isinstance(op, SampleOp):
            raise WeightsRemoved(op.sampler)
        if word == b"full":
            raise TooManyWaiting(self._limits.max_waiting_per_tenant)
        if word == b"stranger":
            raise MemberUnknown(first_id)
        self._follow_up(bells, bodies)
        return first_id

    def skip(self, run: RunId, turn: int) -> None:
        self._ring_all(self._call("skip", run, turn))

    # -------------------------------------------------------------------------------------------- batches
    def open_batch(self, batch: Batch) -> Batch:
        most = self._limits.max_waiting_per_tenant
        word, fields = self._call("open_batch", most, batch.id, batch.tenant, batch.ops, *batch_fields(batch))
        if word == b"full":
            raise NoRoomForBatch(most, int(fields), batch.ops)
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
        op_id, kind, tenant, turn, body_at, body = row
        data = self._fetch(body_key(OpId(op_id.decode()))) if body_at == b"shelf" else body
        action = cast(TrainAction, codec.decode(kind.decode(), data))
        whose = TenantId(tenant.decode())
        return TrainOp(id=OpId(op_id.decode()), tenant=whose, run=run, turn=int(turn), action=action)

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
        data, sums = codec.encode(result), sums_fields(held.op, result)
        if len(data) <= self._limits.inline_bytes:
            self._settle(held, Status.DONE, "result_kind", result.kind, "result_at", "inline", "result", data, *sums)
            return
        key = result_key(held.op.id, held.epoch)
        self._shelf.put(key, data)
        try:
            self._settle(held, Status.DONE, "result_kind", result.kind, "result_at", "shelf", *sums)
        except ClaimLost:
            self._discard(key)
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
        with told_apart():
            row = cast(list[Any], self._client.hmget(self._keys.op(op_id), _READ_FIELDS))
        tenant, kind, status, attempts, result_at, result_kind, result, failure, settled_by, bell, label = row
        if status is None:
            return None
        record = Record(
            id=op_id,
            tenant=TenantId(tenant.decode()),
            kind=kind.decode(),
            status=Status(status.decode()),
            attempts=int(attempts),
            failure=None if failure is None else codec.decode_failure(failure),
            queue=codec.decode_bell(bell).queue if bell else "",
            label="" if label is None else label.decode(),
        )
        if record.status is not Status.DONE:
            return record
        try:
            data = self._fetch(result_key(op_id, int(settled_by))) if result_at == b"shelf" else result
        except BytesLost as error:
            log.error("%s", error, extra={"action": "read", "op": op_id})
            return replace(record, status=Status.FAILED, failure=failure_of(error))
        return replace(record, result=codec.decode(result_kind.decode(), data))

    def statuses(self, op_ids: Iterable[OpId]) -> dict[OpId, str]:
        with told_apart():
            return statuses(self._client, self._keys, op_ids)

    def place(self, op_id: OpId) -> Place | None:
        answer = self._call("place", op_id)
        if not answer:
            return None
        ahead, elapsed, rung = answer
        return Place(ahead=ahead, seconds=waits_seconds(ahead, float(elapsed), float(rung)))

    def queues(self) -> list[QueueLoad]:
        return take_census(lambda *page: self._call("census", *page))

    def life(self, op_id: OpId) -> Life | None:
        return read_life(self._call("life", op_id, MEMBERS_TOLD))

    def waiting(self, tenant: TenantId) -> int:
        with told_apart():
            return int(cast(bytes | None, self._client.hget(self._keys.tenants, tenant)) or 0)

    # -------------------------------------------------------------------------------------------- putting right
    def sweep(self) -> Swept:
        limits = self._limits
        bells, bodies, rung, taken, given_up, gaps, forgotten, moved, let_go, results = self._call(
            "sweep",
            limits.max_attempts,
            limits.gap_seconds,
            limits.keep_seconds,
            SWEEP_AT_MOST,
            self._worn_out,
            POLICY_SECONDS,
            MEMBERS_AT_MOST,
        )
        self._follow_up(bells, bodies)
        for op_id, epoch in zip(results[::2], results[1::2], strict=True):
            self._discard(result_key(OpId(op_id.decode()), int(epoch)))
        return Swept(
            rung_again=rung,
            taken_back=taken,
            given_up=given_up,
            gaps_skipped=gaps,
            forgotten=forgotten,
            moved=moved,
            let_go=let_go,
        )

    # -------------------------------------------------------------------------------------------- shared steps
    def _call(self, name: str, *args: Any) -> Any:
        with told_apart():
            return self._scripts[name](keys=(self._keys.prefix,), args=(*self._header(), *args))

    def _call_all(self, name: str, calls: Iterable[Sequence[Any]]) -> list[Any]:
        """A script each, in one round trip."""
        pipeline = self._client.pipeline(transaction=False)
        for args in calls:
            self._scripts[name](keys=(self._keys.prefix,), args=(*self._header(), *args), client=pipeline)
        with told_apart():
            return pipeline.execute()

    def _header(self) -> tuple[float, float]:
        return self._clock_offset(), self._limits.ring_again_seconds

    def _follow_up(self, bells: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        self._ring_all(bells)
        for op_id in bodies:
            self._discard(body_key(OpId(op_id.decode())))

    def _ring_all(self, bells: Sequence[bytes]) -> None:
        for encoded, holder in zip(bells[::2], bells[1::2], strict=True):
            bell = codec.decode_bell(encoded)
            self._ring(bell.at(WorkerId(holder.decode())) if holder else bell)

    def _fetch(self, key: str) -> bytes:
        try:
            return self._shelf.get(key)
        except KeyError as error:
            raise BytesLost(key) from error

    def _fetch_body(self, op_id: OpId) -> bytes | None:
        """The body of an op just claimed, or None where it is gone: because the op was cancelled in this very moment,
        or because the shelf lost it, which ends the op."""
        try:
            return self._fetch(body_key(op_id))
        except BytesLost as error:
            log.error("%s", error, extra={"action": "claim", "op": op_id})
            self.cancel(op_id, error)
            return None

    def _discard(self, key: str) -> None:
        """What is deleted has no row any more: a shelf that refuses costs space and must not undo what was settled."""
        try:
            self._shelf.delete(key)
        except Exception:
            log.exception("left on the shelf: %s", key, extra={"action": "discard"})


def lapse(client: redis.Redis, holder: WorkerId, prefix: str = "openrl:") -> None:
    """The process of a holder has ended, as its supervisor knows: its leases and claims are not waited for. The next
    sweep sees to them."""
    with told_apart():
        _scripts(client)["lapse"](keys=(prefix,), args=(0.0, 0.0, holder))


def statuses(client: redis.Redis, keys: Keys, op_ids: Iterable[OpId]) -> dict[OpId, str]:
    """Status by op in one round trip; unknown ones are left out."""
    wanted = list(op_ids)
    if not wanted:
        return {}
    pipeline = client.pipeline(transaction=False)
    for op_id in wanted:
        pipeline.hget(keys.op(op_id), "status")
    found = cast(list[bytes | None], pipeline.execute())
    return {op_id: status.decode() for op_id, status in zip(wanted, found, strict=True) if status is not None}


def _scripts(client: redis.Redis) -> dict[str, Callable[..., Any]]:
    here = resources.files("openrl.ledger")
    heads = ((here / name).read_text() for name in ("rows.lua", "lines.lua", "joins.lua", "batches.lua"))
    head = "\n".join((f"local UNSERVED_SLOTS, BELLS_AT_ONCE = {UNSERVED_SLOTS}, {BELLS_AT_ONCE}", *heads, ""))
    names = (
        *("append", "skip", "claim", "renew", "settle", "give_back", "cancel", "sweep"),
        *("alive", "loads", "release", "leave", "lapse", "journal", "snapshot", "forget", "place", "retire"),
        *("census", "life"),
        *("open_batch", "close_batch", "call_off"),
    )
    return {name: client.register_script(head + (here / f"{name}.lua").read_text()) for name in names}
