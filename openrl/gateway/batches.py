"""Batches of rollouts: recorded as ops, called off, and told how they stand. Blocking.

All ids follow from tenant and key, so a resend meets what there is of the batch and completes it.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import orjson

from openrl.domain.errors import BatchNotFound, FieldInvalid, OpCancelled, PassingError, WeightsRemoved
from openrl.domain.ids import BatchId, OpId, TenantId
from openrl.domain.judge import AskJudge
from openrl.domain.op import Bell, Op
from openrl.gateway.admission import digest
from openrl.gateway.offers import require_offered
from openrl.gateway.policies import Policy, policy_of
from openrl.gateway.rollout_ops import Groups, judge_id, judge_owner, number_of, sample_id
from openrl.gateway.services import Services
from openrl.ledger.batches import Batch
from openrl.telemetry import traces
from openrl.wire.groups import dropped_by_reason, group_fields, reward_fields
from openrl.wire.judge import NAME as JUDGE
from openrl.wire.judge import Judge, judge_of, named
from openrl.wire.questions import to_questions
from openrl.wire.rollouts import RolloutRequest, to_rewards, to_rollouts

log = logging.getLogger(__name__)

CALLING_OFF_SECONDS: Final = 0.5  #: that whoever calls a batch off waits for it
OPS_EACH: Final = 2  #: a group's sample op and its reward op; its judge's is one more


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is kept with a batch."""

    policy: Policy
    group_size: int
    on_failure: str
    judge: Policy | None = None

    @classmethod
    def of(cls, batch: Batch) -> "Note":
        fields = orjson.loads(batch.note)
        judge = fields.get("judge")
        return cls(**{**fields, "policy": Policy(**fields["policy"]), "judge": Policy(**judge) if judge else None})


def create(services: Services, tenant: TenantId, wanted: RolloutRequest) -> Batch:
    """Let the batch in whole, or raise NoRoomForBatch, BatchTooLarge and whatever the checks raise."""
    batch_id = BatchId(digest("rollouts", tenant, wanted.key))
    print_of = sha256(wanted.model_dump_json(exclude={"key"}).encode()).hexdigest()
    standing = services.ledger.batch(batch_id)
    if standing is not None and standing.digest != print_of:
        raise FieldInvalid("key", "was used for another request; make a new one for every new request")
    if standing is not None and standing.whole:
        return standing
    judge = judge_of(wanted)
    note = _note(services, tenant, wanted, judge) if standing is None else Note.of(standing)
    ops = _ops(services, tenant, batch_id, wanted, note, judge)
    batch = services.ledger.open_batch(
        Batch(
            id=batch_id,
            tenant=tenant,
            groups=len(wanted.prompts),
            ops=(OPS_EACH + (judge is not None)) * len(wanted.prompts),
            digest=print_of,
            note=orjson.dumps(asdict(note)),
        )
    )
    try:
        services.ledger.append_all(ops)
    except WeightsRemoved as error:
        raise _removed(note, judge if error.args[0] == judge_owner(batch_id) else None) from None
    return batch


def _note(services: Services, tenant: TenantId, wanted: RolloutRequest, judge: Judge | None) -> Note:
    policy = policy_of(services, tenant, wanted.policy)
    judges = None if judge is None else _judging(services, tenant, judge)
    return Note(policy=policy, group_size=wanted.group_size, on_failure=wanted.on_failure, judge=judges)


def _judging(services: Services, tenant: TenantId, judge: Judge) -> Policy:
    with named(judge.where):
        return policy_of(services, tenant, judge.params.policy, f"{judge.where}.policy")


def _removed(note: Note, judge: Judge | None) -> FieldInvalid:
    field, policy = ("policy", note.policy) if judge is None else (f"{judge.where}.policy", note.judge)
    assert policy is not None
    return FieldInvalid(field, f"the weights of {policy.name} were removed; name a checkpoint's path")


def _ops(
    services: Services, tenant: TenantId, batch: BatchId, wanted: RolloutRequest, note: Note, judge: Judge | None
) -> Iterator[tuple[Op, Bell]]:
    """All that can be refused is refused before the first."""
    _require_offered(services, wanted)
    groups = Groups(
        tenant=tenant,
        batch=batch,
        prompts=wanted.prompts,
        rewards=to_rewards(wanted, services.rewards(), {} if judge is None else {JUDGE: judge.reading}),
        rollouts=to_rollouts(wanted, services.card(note.policy.base_model), note.policy.key),
        questions=_questions(services, batch, wanted, note, judge),
        samples=wanted.group_size,
        lanes=services.settings.sample.lanes,
        trace=traces.traceparent(),
    )
    return groups.ops()


def _require_offered(services: Services, wanted: RolloutRequest) -> None:
    for number, reward in enumerate(wanted.rewards):
        where = f"rewards[{number}]"
        require_offered(
            reward.name,
            reward.params,
            services.settings.reward,
            services.rewards(),
            field=f"{where}.name",
            params_field=f"{where}.params",
        )


def _questions(
    services: Services, batch: BatchId, wanted: RolloutRequest, note: Note, judge: Judge | None
) -> list[AskJudge]:
    if judge is None or note.judge is None:
        return []
    of = [sample_id(batch, number) for number in range(len(wanted.prompts))]
    return to_questions(judge, wanted, services.card(note.judge.base_model), note.judge.key, of)


def batch_of(services: Services, tenant: TenantId, batch_id: BatchId) -> Batch:
    """As it stands. One that was to fail with its first loss is called off. Raises BatchNotFound."""
    batch = services.ledger.batch(batch_id)
    if batch is None or batch.tenant != tenant:
        raise BatchNotFound(batch_id)
    if status_of(batch) == "failed" and not batch.over:
        return call_off(services, batch)
    return batch


def call_off(services: Services, batch: Batch) -> Batch:
    """Cancel what has not settled: all of it within CALLING_OFF_SECONDS, or the rest behind the caller's back. Answers
    the batch as it stands."""
    services.ledger.close_batch(batch.id, OpCancelled())
    until = time.monotonic() + CALLING_OFF_SECONDS
    while services.ledger.call_off(batch.id):
        if time.monotonic() > until:
            services.pool.submit(_call_off_rest, services, batch.id)
            break
    return services.ledger.batch(batch.id) or batch


def _call_off_rest(services: Services, batch: BatchId) -> None:
    """Should this end early, with the gateway or because the ledger is away, the ledger's sweeps see to it."""
    try:
        while services.ledger.call_off(batch):
            pass
    except PassingError as error:
        log.warning("left to the sweeps: %s", error, extra={"action": "call_off", "batch": batch})


def group_of(services: Services, batch: Batch, op_id: OpId) -> dict[str, Any]:
    """A settled group of the batch, told by the op that ended it. Raises BatchNotFound where it has expired."""
    number, note = number_of(op_id), Note.of(batch)
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
    """Of the last of the batch: how long until it is begun, and why it is not; once sampled, its judge's."""
    ids = (sample_id, judge_id) if Note.of(batch).judge is not None else (sample_id,)
    last = [id_of(batch.id, batch.groups - 1) for id_of in ids]
    waiting = [record for op in last if (record := services.ledger.read(op)) is not None and record.queue]
    if not waiting:
        return {"reason": None, "seconds": None}
    place = services.ledger.place(waiting[0].id)
    return {"reason": services.why_waiting(waiting[0]), "seconds": None if place is None else place.seconds}
