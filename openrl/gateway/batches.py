"""Batches of rollouts: recorded as ops, called off, and told how they stand. Blocking.

All ids follow from tenant and key, so a resend meets what there is of the batch and completes it.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import orjson

from openrl.domain.errors import BatchNotFound, FieldInvalid, OpCancelled, WeightsRemoved
from openrl.domain.ids import BatchId, OpId, SamplerId, TenantId
from openrl.domain.op import Bell, Op, RewardOp, SampleOp
from openrl.domain.rollout import After, OnFailure, RollOut, ScoreGroup
from openrl.gateway.admission import digest
from openrl.gateway.policies import Policy, policy_of
from openrl.gateway.services import Services
from openrl.ledger.batches import Batch
from openrl.wire.groups import dropped_by_reason, group_fields, reward_fields
from openrl.wire.rollouts import RolloutRequest, to_rewards, to_rollouts

log = logging.getLogger(__name__)

OPS_EACH: Final = 2  #: a group's sample op and its reward op


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is kept with a batch."""

    policy: Policy
    group_size: int
    on_failure: str

    @classmethod
    def of(cls, batch: Batch) -> "Note":
        fields = orjson.loads(batch.note)
        return cls(**{**fields, "policy": Policy(**fields["policy"])})


def create(services: Services, tenant: TenantId, wanted: RolloutRequest) -> Batch:
    """Let the batch in whole, or raise NoRoomForBatch and whatever the checks raise."""
    batch_id = BatchId(digest("rollouts", tenant, wanted.key))
    print_of = sha256(wanted.model_dump_json(exclude={"key"}).encode()).hexdigest()
    standing = services.ledger.batch(batch_id)
    if standing is not None and standing.digest != print_of:
        raise FieldInvalid("key", "was used for another request; make a new one for every new request")
    if standing is not None and standing.whole:
        return standing
    policy = policy_of(services, tenant, wanted.policy) if standing is None else Note.of(standing).policy
    note = Note(policy=policy, group_size=wanted.group_size, on_failure=wanted.on_failure)
    ops = _ops(services, tenant, batch_id, wanted, policy)
    batch = services.ledger.open_batch(
        Batch(
            id=batch_id,
            tenant=tenant,
            groups=len(wanted.prompts),
            ops=OPS_EACH * len(wanted.prompts),
            digest=print_of,
            note=orjson.dumps(asdict(note)),
        )
    )
    try:
        services.ledger.append_all(ops)
    except WeightsRemoved:
        raise FieldInvalid("policy", f"the weights of {policy.name} were removed; name a checkpoint's path") from None
    return batch


def _ops(
    services: Services, tenant: TenantId, batch: BatchId, wanted: RolloutRequest, policy: Policy
) -> Iterator[tuple[Op, Bell]]:
    """All that can be refused is refused before the first."""
    rewards = to_rewards(wanted, services.rewards())
    rollouts = to_rollouts(wanted, services.card(policy.base_model), policy.key)

    def both(action: RollOut) -> Iterator[tuple[Op, Bell]]:
        number, prompt = action.number, wanted.prompts[action.number]
        sample = SampleOp(
            id=sample_id(batch, number),
            tenant=tenant,
            sampler=SamplerId(batch),
            number=number,
            action=action,
            batch=batch,
        )
        reward = RewardOp(
            id=reward_id(batch, number),
            tenant=tenant,
            action=ScoreGroup(of=sample.id, samples=wanted.group_size, rewards=rewards, context=prompt.context),
            after=After(ops=(sample.id,), on_failure=OnFailure.RUN),
            batch=batch,
            label=prompt.id,
        )
        yield sample, services.bell(sample, policy.base_model)
        yield reward, services.bell(reward, "")

    return (pair for action in rollouts for pair in both(action))


def sample_id(batch: BatchId, number: int) -> OpId:
    return OpId(f"{batch}.{number}.sample")


def reward_id(batch: BatchId, number: int) -> OpId:
    return OpId(f"{batch}.{number}.reward")


def batch_of(services: Services, tenant: TenantId, batch_id: BatchId) -> Batch:
    """As it stands. One that was to fail with its first loss is called off. Raises BatchNotFound."""
    batch = services.ledger.batch(batch_id)
    if batch is None or batch.tenant != tenant:
        raise BatchNotFound(batch_id)
    if status_of(batch) == "failed" and not batch.over:
        return call_off(services, batch)
    return batch


def call_off(services: Services, batch: Batch) -> Batch:
    """Cancel what has not settled. Rewards first: without their samples they would be worked on."""
    services.ledger.close_batch(batch.id)
    numbers = range(batch.groups)
    ops = (op for number in numbers for op in (reward_id(batch.id, number), sample_id(batch.id, number)))
    services.ledger.cancel_all(ops, OpCancelled())
    return services.ledger.batch(batch.id) or batch


def group_of(services: Services, batch: Batch, op_id: OpId) -> dict[str, Any]:
    """A settled group of the batch, told by the op that ended it. Raises BatchNotFound where it has expired."""
    number, note = int(op_id.split(".")[-2]), Note.of(batch)
    scored = services.ledger.read(op_id)
    if scored is None:
        raise BatchNotFound(batch.id)
    sampled = services.ledger.read(sample_id(batch.id, number))
    return group_fields(number, note.group_size, note.policy.name, sampled, scored)


def status_of(batch: Batch) -> str:
    lost = _dropped(batch)
    if Note.of(batch).on_failure == "fail" and any(error != OpCancelled.__name__ for error in lost):
        return "failed"
    if batch.cancelled:
        return "cancelled"
    return "done" if batch.over else "running"


def state_of(services: Services, batch: Batch) -> dict[str, Any]:
    note, lost = Note.of(batch), _dropped(batch)
    return {
        "batch_id": batch.id,
        "status": status_of(batch),
        "created_at": datetime.fromtimestamp(batch.created, UTC).isoformat(),
        "groups": batch.groups,
        "groups_done": batch.groups_settled,
        "group_size": note.group_size,
        "rollouts": {
            "asked": batch.groups * note.group_size,
            "done": round(batch.sums.get("done", 0)),
            "dropped": sum(lost.values()),
        },
        "dropped_by_reason": lost,
        "reward": reward_fields(batch.sums),
        "policy": {"name": note.policy.name, "base_model": note.policy.base_model},
        "queue": {} if batch.over else _queue(services, batch),
    }


def _dropped(batch: Batch) -> dict[str, int]:
    return dropped_by_reason(batch.sums, batch.failed, Note.of(batch).group_size)


def _queue(services: Services, batch: Batch) -> dict[str, Any]:
    """Of the last of the batch: how long until it is begun, and why it is not."""
    last = sample_id(batch.id, batch.groups - 1)
    record, place = services.ledger.read(last), services.ledger.place(last)
    reason = services.why_waiting(record) if record is not None and record.queue else None
    return {"reason": reason, "seconds": None if place is None else place.seconds}
