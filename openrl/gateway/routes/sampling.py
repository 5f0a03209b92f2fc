"""Samplers and samples."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.domain.checkpoint import CheckpointPath
from openrl.domain.errors import FieldInvalid, WeightsRemoved
from openrl.domain.ids import SamplerId, SessionId
from openrl.domain.policy import Sampler
from openrl.gateway.admission import sampler_id, submit_sample
from openrl.gateway.call import PROMPT_BYTES, Call, answered, json_response
from openrl.wire.base import read_json
from openrl.wire.sampling import CreateSamplingSession, SampleRequest, to_sample

router = APIRouter(prefix="/api/v1")


@router.post("/create_sampling_session")
async def create_sampling_session(request: Request) -> Response:
    return await answered(request, _create)


@router.get("/samplers/{sampler}")
async def get_sampler(request: Request, sampler: str) -> Response:
    return await answered(request, lambda call: _get(call, SamplerId(sampler)))


@router.post("/asample")
async def asample(request: Request) -> Response:
    return await answered(request, _sample, limit=PROMPT_BYTES)


def _create(call: Call) -> Response:
    wanted = read_json(CreateSamplingSession, call.body())
    call.services.catalog.session(call.tenant, SessionId(wanted.session_id))
    sampler = _of_weights(call, wanted, wanted.model_path) if wanted.model_path else _of_base_model(call, wanted)
    standing = call.services.catalog.add_sampler(sampler)
    if (standing.base_model, standing.model_path) != (sampler.base_model, sampler.model_path):
        raise taken(sampler.id)
    return json_response({"type": "create_sampling_session", "sampling_session_id": sampler.id})


def taken(sampler: SamplerId) -> FieldInvalid:
    """Silently sampling the weights of an earlier request would be worse."""
    return FieldInvalid("sampling_session_seq_id", f"{sampler} is there already and samples other weights; count on")


def _of_base_model(call: Call, wanted: CreateSamplingSession) -> Sampler:
    if wanted.base_model is None:
        raise FieldInvalid("base_model", "is missing; send base_model, model_path, or both")
    card = call.services.requested_card(wanted.base_model)
    if not card.sampleable:
        raise FieldInvalid("base_model", f"{wanted.base_model} is served for training only")
    session = SessionId(wanted.session_id)
    return Sampler(
        id=sampler_id(session, wanted.sampling_session_seq_id),
        tenant=call.tenant,
        session=session,
        base_model=card.name,
        requested_model=wanted.base_model,
        policy=None,
    )


def _of_weights(call: Call, wanted: CreateSamplingSession, model_path: str) -> Sampler:
    """From a checkpoint of the tenant's own, of either kind."""
    path = CheckpointPath.parse(model_path, "model_path")
    checkpoint = call.services.catalog.checkpoint(call.tenant, path)
    run = call.services.run(call.tenant, path.run)
    if wanted.base_model is not None and call.services.requested_card(wanted.base_model).name != run.base_model:
        raise FieldInvalid("base_model", f"is {wanted.base_model!r}, but {model_path} is for {run.base_model}")
    session = SessionId(wanted.session_id)
    return Sampler(
        id=sampler_id(session, wanted.sampling_session_seq_id),
        tenant=call.tenant,
        session=session,
        base_model=run.base_model,
        requested_model=wanted.base_model or run.requested_model,
        policy=checkpoint.key,
        model_path=model_path,
    )


def _get(call: Call, sampler: SamplerId) -> Response:
    found = call.services.sampler(call.tenant, sampler)
    return json_response({"sampler_id": found.id, "base_model": found.requested_model, "model_path": found.model_path})


def _sample(call: Call) -> Response:
    services = call.services
    wanted = read_json(SampleRequest, call.body())
    sampler = services.sampler(call.tenant, SamplerId(wanted.sampling_session_id))
    if sampler.removed:
        raise WeightsRemoved(sampler.id)
    action = to_sample(wanted, sampler, services.card(sampler.base_model), services.body_bytes)
    op_id = submit_sample(services, call.tenant, sampler.id, wanted.seq_id, action)
    sequences = [f"{op_id}-{number}" for number in range(wanted.num_samples)]
    return json_response({"request_id": op_id, "sample_sequence_ids": sequences})
