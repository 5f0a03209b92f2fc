"""An op as the fields of its row in Redis, and back. Pure; `rows.lua` tells what they mean."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, SamplerId, TenantId
from openrl.domain.op import Action, Bell, Op, RewardOp, SampleOp, TrainAction, TrainOp, policy_of
from openrl.domain.outcome import Result
from openrl.domain.rollout import Graded
from openrl.ledger import codec
from openrl.ledger.batches import ERROR_KEPT, Batch
from openrl.ledger.joins import members_of
from openrl.ledger.port import Lease

Fields = tuple[str | int | bytes, ...]


def turn_fields(op: Op) -> tuple[str, str]:
    """An op's run and turn, empty where it has none."""
    return (op.run, str(op.turn)) if isinstance(op, TrainOp) else ("", "")


def shape_fields(op: Op) -> Fields:
    """The fields that only its shape has."""
    match op:
        case TrainOp():
            return ()
        case SampleOp():
            return ("sampler", op.sampler, "number", op.number, *(() if op.batch is None else ("batch", op.batch)))
        case RewardOp():
            batch: Fields = () if op.batch is None else ("batch", op.batch, "group", 1)
            return (*batch, "label", op.label) if op.label else batch


def batch_of(op: Op) -> str:
    return "" if isinstance(op, TrainOp) else op.batch or ""


def append_fields(op: Op, bell: Bell, body: bytes | None) -> Fields:
    """What `append.lua` takes of an op; its body is on the shelf where it is None. Raises FieldInvalid."""
    policy = policy_of(op)
    needs: Fields = ("policy", policy) if policy is not None else ()
    place: Fields = ("body_at", "shelf") if body is None else ("body_at", "inline", "body", body)
    owner = "" if isinstance(op, TrainOp) else op.owner
    return (
        *(op.id, op.once, op.tenant, *turn_fields(op), bell.line, owner, policy or "", join_field(op), batch_of(op)),
        *("kind", op.action.kind, "bell", codec.encode(bell), *shape_fields(op), *needs, *place),
    )


def join_field(op: Op) -> bytes:
    """Empty for an op that waits for none. Raises FieldInvalid for too many members."""
    members = members_of(op)
    return codec.encode(replace(op.after, ops=members)) if op.after is not None and members else b""


def sums_fields(op: Op, result: Result) -> Fields:
    if isinstance(op, RewardOp) and op.batch is not None and isinstance(result, Graded):
        return ("sums", codec.encode(result.sums))
    return ()


def lease_of(op: Op, lease: Sequence[bytes | None]) -> Lease | None:
    if not isinstance(op, TrainOp):
        return None
    epoch, snapshot, turn = (None if part is None else part.decode() for part in lease)
    key = DepotKey(snapshot) if snapshot else None
    return Lease(run=op.run, epoch=int(epoch or 0), snapshot=key, snapshot_turn=-1 if turn is None else int(turn))


def op_of(op_id: OpId, shape: Sequence[bytes | None], body: bytes) -> Op:
    *texts, join = shape
    kind, tenant, run, turn, sampler, number, batch, label = ("" if part is None else part.decode() for part in texts)
    action: Action = codec.decode(kind, body)
    common: dict[str, Any] = {"id": op_id, "tenant": TenantId(tenant), "action": cast(Any, action)}
    common["after"] = codec.decode_after(join) if join else None
    if run:
        return TrainOp(run=RunId(run), turn=int(turn), **common)
    common["batch"] = BatchId(batch) if batch else None
    if sampler:
        return SampleOp(sampler=SamplerId(sampler), number=int(number), **common)
    return RewardOp(label=label, **common)


def journaled_op(op_id: OpId, run: RunId, shape: Sequence[bytes], body: bytes) -> TrainOp:
    kind, tenant, turn = (part.decode() for part in shape)
    action = cast(TrainAction, codec.decode(kind, body))
    return TrainOp(id=op_id, tenant=TenantId(tenant), run=run, turn=int(turn), action=action)


def batch_fields(batch: Batch) -> Fields:
    """Of a new one; its script adds the rest."""
    return ("groups", batch.groups, "digest", batch.digest, "note", batch.note)


def read_batch(batch: BatchId, fields: dict[bytes, bytes]) -> Batch:
    counts = {name.decode(): value for name, value in fields.items()}
    return Batch(
        id=batch,
        tenant=TenantId(fields[b"tenant"].decode()),
        groups=int(fields[b"groups"]),
        ops=int(fields[b"ops"]),
        digest=fields[b"digest"].decode(),
        note=fields[b"note"],
        created=float(fields[b"created"]),
        appended=int(fields[b"appended"]),
        unsettled=int(fields[b"unsettled"]),
        groups_settled=int(fields[b"groups_settled"]),
        cancelled=b"cancelled" in fields,
        sums={name[2:]: float(value) for name, value in counts.items() if name.startswith("t:")},
        failed={name.removeprefix(ERROR_KEPT): int(n) for name, n in counts.items() if name.startswith(ERROR_KEPT)},
    )
