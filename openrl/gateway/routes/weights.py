"""Weights saved and loaded, each a turn of its run."""

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import RunId
from openrl.domain.op import LoadWeights, SavePolicy
from openrl.domain.policy import Sampler
from openrl.domain.run import Run
from openrl.gateway.admission import (
    checkpoint_key,
    policy_key,
    read_turn,
    sampler_id,
    skip_turn,
    submit_turn,
)
from openrl.gateway.call import Call, answered, json_response
from openrl.gateway.routes.models import create_from_weights, load_of
from openrl.gateway.routes.sampling import taken
from openrl.wire.base import named_turn, read_json
from openrl.wire.weights import (
    CreateFromWeights,
    LoadInto,
    SavePolicyRequest,
    SaveWeightsRequest,
    check_same_shape,
    to_save,
    to_save_policy,
)

router = APIRouter(prefix="/api/v1")


@router.post("/save_weights")
async def save_weights(request: Request) -> Response:
    return await answered(request, _save)


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(request: Request) -> Response:
    return await answered(request, _save_policy)


@router.post("/save_weights_external")
async def save_weights_external(request: Request) -> Response:
    return await answered(request, _save_external)


@router.post("/load_weights")
async def load_weights(request: Request) -> Response:
    return await answered(request, _load)


def _save(call: Call) -> Response:
    wanted = read_turn(call.services, call.tenant, SaveWeightsRequest, call.body())
    op_id = submit_turn(
        call.services, call.tenant, wanted, lambda run: to_save(wanted, checkpoint_key(run, wanted.seq_id))
    )
    return json_response({"request_id": op_id, "model_id": wanted.model_id})


def _save_policy(call: Call) -> Response:
    wanted = read_turn(call.services, call.tenant, SavePolicyRequest, call.body())
    op_id = submit_turn(call.services, call.tenant, wanted, lambda run: _policy_of(call, wanted, run))
    return json_response({"request_id": op_id, "model_id": wanted.model_id})


def _policy_of(call: Call, wanted: SavePolicyRequest, run: Run) -> SavePolicy:
    """A sampler is entered before the op that writes its weights, so that the one in the result exists. A resend names
    another sampler; the key of the weights follows from run and turn alone, so both mean the same policy."""
    if wanted.path is not None:
        return to_save_policy(wanted, checkpoint_key(run, wanted.seq_id), None)
    sampler = sampler_id(run.session, wanted.sampling_session_seq_id or 0)
    action = to_save_policy(wanted, policy_key(run, wanted.seq_id), sampler)
    standing = call.services.catalog.add_sampler(
        Sampler(
            id=sampler,
            tenant=run.tenant,
            session=run.session,
            base_model=run.base_model,
            requested_model=run.requested_model,
            policy=action.target,
            run=run.id,
        )
    )
    if standing.policy != action.target:
        raise taken(sampler)
    return action


def _save_external(call: Call) -> Response:
    if named := named_turn(call.body()):
        skip_turn(call.services, call.tenant, named)
    raise FieldInvalid("path", "external weights are not supported; use save_state, or download the checkpoint")


def _load(call: Call) -> Response:
    body = call.body()
    if _names_run(body):
        return _load_into(call, body)
    return create_from_weights(call, read_json(CreateFromWeights, body))


def _names_run(body: bytes) -> bool:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(fields, dict) and "model_id" in fields


def _load_into(call: Call, body: bytes) -> Response:
    wanted = read_turn(call.services, call.tenant, LoadInto, body)
    op_id = submit_turn(call.services, call.tenant, wanted, lambda run: _load_action(call, wanted, run))
    return json_response({"request_id": op_id, "model_id": RunId(wanted.model_id)})


def _load_action(call: Call, wanted: LoadInto, run: Run) -> LoadWeights:
    action, source = load_of(call, wanted)
    if source.base_model != run.base_model:
        raise FieldInvalid("path", f"the checkpoint is for {source.base_model} and the run for {run.base_model}")
    check_same_shape(source.lora, run.lora)
    return action
