"""Runs: created from a base model or from weights, and described."""

import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.domain.checkpoint import CheckpointPath
from openrl.domain.errors import FieldInvalid, FullRunsOff
from openrl.domain.ids import RunId, SessionId
from openrl.domain.op import CreateRun, LoadWeights, TrainAction
from openrl.domain.run import LoraSpec, Run
from openrl.gateway.admission import run_id, submit_train
from openrl.gateway.call import Call, answered, json_response
from openrl.wire.base import read_json
from openrl.wire.model import CreateModel, GetInfo, WeightsInfo, check_optimizer, to_lora
from openrl.wire.weights import CreateFromWeights, Load, to_load, to_load_path

#: A gateway that listens there has clients on its own machine only.
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
#: With the value 1 it asks for a run of all weights, whatever adapter the request describes.
FULL_HEADER: Final = "X-OpenRL-Full"

router = APIRouter(prefix="/api/v1")


@router.post("/create_model")
async def create_model(request: Request) -> Response:
    full = _wants_full(request)
    return await answered(request, lambda call: _create(call, full=full))


@router.post("/get_info")
async def get_info(request: Request) -> Response:
    return await answered(request, _info)


@router.post("/weights_info")
async def weights_info(request: Request) -> Response:
    return await answered(request, _weights_info)


def _wants_full(request: Request) -> bool:
    """Whether the header asks for a run of all weights: an SDK client has no other way, it always sends a rank."""
    value = request.headers.get(FULL_HEADER)
    if value not in (None, "1"):
        raise FieldInvalid(FULL_HEADER, f"is {value!r}; send 1, or leave it out")
    return value is not None


def _create(call: Call, *, full: bool) -> Response:
    wanted = read_json(CreateModel, call.body())
    card = call.services.requested_card(wanted.base_model)
    if not card.trainable:
        raise FieldInvalid("base_model", f"{wanted.base_model} is served for sampling only")
    lora = to_lora(wanted, card, full=full)
    run = _new_run(call, wanted.session_id, wanted.model_seq_id, card.name, wanted.base_model, lora)
    run = replace(run, user_metadata=wanted.user_metadata or {})
    return _begin(call, run, CreateRun(base_model=card.name, lora=_seeded(lora)))


def _seeded(lora: LoraSpec | None) -> LoraSpec | None:
    """With a seed in any case: whoever creates the run again after a crash must get the same weights."""
    return lora if lora is None or lora.seed is not None else replace(lora, seed=secrets.randbits(31))


def create_from_weights(call: Call, wanted: CreateFromWeights) -> Response:
    """A run whose turn 0 loads a checkpoint, which also says how the adapter is shaped, if it is one."""
    check_optimizer(wanted.optimizer_config)
    action, source = load_of(call, wanted)
    if source.lora is None and not call.services.card(source.base_model).full_runs:
        raise FullRunsOff
    name = wanted.base_model or source.requested_model
    run = _new_run(call, wanted.session_id, wanted.model_seq_id, source.base_model, name, source.lora)
    return _begin(call, replace(run, user_metadata=wanted.user_metadata or {}), action)


def load_of(call: Call, wanted: Load) -> tuple[LoadWeights, Run]:
    """Loading the checkpoint asked for, and the run it was saved from. Raises CheckpointMissing, FieldInvalid."""
    path = to_load_path(wanted)
    checkpoint = call.services.catalog.checkpoint(call.tenant, path)
    source = call.services.run(call.tenant, path.run)
    if wanted.base_model is not None and call.services.requested_card(wanted.base_model).name != source.base_model:
        raise FieldInvalid("base_model", f"is {wanted.base_model!r}, but the weights are for {source.base_model}")
    return to_load(wanted, checkpoint, source), source


def _new_run(call: Call, session: str, number: int, base_model: str, requested: str, lora: LoraSpec | None) -> Run:
    now = datetime.now(UTC)
    return Run(
        id=run_id(session, number),
        tenant=call.tenant,
        session=SessionId(session),
        base_model=base_model,
        requested_model=requested,
        lora=lora,
        created_at=now,
        last_request_at=now,
    )


def _begin(call: Call, run: Run, action: TrainAction) -> Response:
    """Enter the run, then its turn 0. Both know a repeat."""
    call.services.catalog.session(call.tenant, run.session)
    standing = call.services.catalog.add_run(run)
    if (standing.base_model, standing.lora) != (run.base_model, run.lora):
        raise FieldInvalid("model_seq_id", f"{run.id} is there already and is trained otherwise; count on")
    call.services.touched(run.id)
    return json_response({"request_id": submit_train(call.services, run, 0, action), "model_id": run.id})


def _info(call: Call) -> Response:
    run = call.services.run(call.tenant, RunId(read_json(GetInfo, call.body()).model_id))
    card = call.services.card(run.base_model)
    return json_response(
        {
            "type": "get_info",
            "model_id": run.id,
            "model_name": run.requested_model,
            "model_data": {
                "arch": card.architecture,
                "model_name": run.requested_model,
                "tokenizer_id": card.tokenizer_for(
                    run.requested_model, same_machine=call.services.settings.gateway.host in LOOPBACK
                ),
            },
            **_lora_fields(run.lora),
        }
    )


def _weights_info(call: Call) -> Response:
    path = CheckpointPath.parse(read_json(WeightsInfo, call.body()).tinker_path, "tinker_path")
    call.services.catalog.checkpoint(call.tenant, path)
    run = call.services.run(call.tenant, path.run)
    return json_response(
        {
            "base_model": run.requested_model,
            **_lora_fields(run.lora),
            "train_unembed": run.lora is None or run.lora.train_unembed,
            "train_mlp": run.lora is None or run.lora.train_mlp,
            "train_attn": run.lora is None or run.lora.train_attn,
        }
    )


def _lora_fields(lora: LoraSpec | None) -> dict[str, Any]:
    return {
        "is_lora": lora is not None,
        "lora_rank": lora.rank if lora is not None else None,
        "optimizer_config": {"type": "adamw"},
    }
