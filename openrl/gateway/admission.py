"""Requests become operations: named, recorded, rung. Row first, bell second, which the ledger sees to.

Ids are derived from what makes a request the same request again (its run and turn, its sampler and number), so that a
resend meets the first one even where the first answer was lost.
"""

from collections.abc import Callable
from hashlib import sha256

from openrl.domain.errors import CallerError
from openrl.domain.ids import DepotKey, OpId, RunId, SamplerId, SessionId, TenantId
from openrl.domain.op import Op, RewardOp, Sample, SampleOp, ScoreTexts, TrainAction, TrainOp
from openrl.domain.policy import WHOLE
from openrl.domain.run import Run
from openrl.gateway.services import Services
from openrl.telemetry import logs
from openrl.wire.base import AnyWire, NamedTurn, TurnRequest, named_turn, read_json


def digest(*parts: object) -> str:
    """The same id for the same parts."""
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def run_id(session: str, number: int) -> RunId:
    """The SDK makes up this form itself after a create-via-load."""
    return RunId(f"{session}:train:{number}")


def sampler_id(session: SessionId, number: int) -> SamplerId:
    return SamplerId(f"{session}:sample:{number}")


def policy_key(run: Run, turn: int) -> DepotKey:
    return DepotKey(f"policies/{_whole(run)}{digest('policy', run.id, turn)}")


def checkpoint_key(run: Run, turn: int) -> DepotKey:
    return DepotKey(f"checkpoints/{_whole(run)}{digest('checkpoint', run.id, turn)}")


def _whole(run: Run) -> str:
    return WHOLE if run.lora is None else ""


def read_turn(services: Services, tenant: TenantId, shape: type[AnyWire], body: bytes) -> AnyWire:
    """A JSON request that takes a turn. One that is refused has still used its turn up."""
    try:
        return read_json(shape, body)
    except CallerError:
        if named := named_turn(body):
            skip_turn(services, tenant, named)
        raise


def submit_turn(
    services: Services, tenant: TenantId, turn: TurnRequest | NamedTurn, action_of: Callable[[Run], TrainAction]
) -> OpId:
    """Record the action that `action_of` makes for the run; where that refuses the request, the run goes on without the
    turn. Raises RunNotFound and whatever `action_of` and the ledger raise."""
    run = services.run(tenant, RunId(turn.model_id))
    try:
        op_id = submit_train(services, run, turn.seq_id, action_of(run))
    except CallerError:
        services.ledger.skip(run.id, turn.seq_id)
        raise
    services.touch(run.id)
    return op_id


def skip_turn(services: Services, tenant: TenantId, turn: NamedTurn) -> None:
    """The run goes on without the turn. Raises RunNotFound."""
    services.ledger.skip(services.run(tenant, RunId(turn.model_id)).id, turn.seq_id)


def submit_train(services: Services, run: Run, turn: int, action: TrainAction) -> OpId:
    op_id = OpId(digest("turn", run.id, turn))
    op = TrainOp(id=op_id, tenant=run.tenant, run=run.id, turn=turn, action=action)
    return _append(services, op, run.base_model)


def submit_sample(services: Services, tenant: TenantId, sampler: SamplerId, number: int, action: Sample) -> OpId:
    op_id = OpId(digest("sample", sampler, number))
    op = SampleOp(id=op_id, tenant=tenant, sampler=sampler, number=number, action=action)
    return _append(services, op, action.base_model)


def submit_score(services: Services, tenant: TenantId, key: str, action: ScoreTexts) -> OpId:
    op = RewardOp(id=OpId(digest("score", tenant, key)), tenant=tenant, action=action)
    return _append(services, op, "")


def _append(services: Services, op: Op, model: str) -> OpId:
    run = op.run if isinstance(op, TrainOp) else None
    with logs.about(op=op.id, run=run, tenant=op.tenant):
        return services.ledger.append(op, services.bell(op, model))
