"""Gradients and optimizer steps."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.domain.errors import CallerError, FieldInvalid
from openrl.gateway.admission import read_turn, skip_turn, submit_turn
from openrl.gateway.call import Call, answered, json_response, services_of
from openrl.gateway.limits import decoded_start
from openrl.wire.base import NamedTurn
from openrl.wire.batch import read_request, to_forward_backward, turn_in
from openrl.wire.training import OptimStepRequest, to_optim_step

router = APIRouter(prefix="/api/v1")


#: Enough of a request to hold the run's id and the turn.
START_BYTES: Final = 4096


@router.post("/forward_backward")
async def forward_backward(request: Request) -> Response:
    whole = services_of(request).body_bytes
    return await answered(request, _forward_backward, limit=whole, too_large=_pass_over)


@router.post("/optim_step")
async def optim_step(request: Request) -> Response:
    return await answered(request, _optim_step)


def _forward_backward(call: Call) -> Response:
    services = call.services
    try:
        message = read_request(call.body())
    except CallerError:
        _pass_over(call)
        raise
    if message.seq_id < 1:
        raise FieldInvalid("seq_id", f"is {message.seq_id}; the turns of a run are counted from 1")
    turn = NamedTurn(message.model_id, message.seq_id)
    op_id = submit_turn(
        services,
        call.tenant,
        turn,
        lambda run: to_forward_backward(message, services.card(run.base_model), services.body_bytes),
    )
    return json_response({"request_id": op_id, "model_id": message.model_id})


def _pass_over(call: Call) -> None:
    """A request that cannot be read to its end has still used its turn up."""
    if turn := turn_in(decoded_start(call.raw_body, call.encoding, START_BYTES)):
        skip_turn(call.services, call.tenant, turn)


def _optim_step(call: Call) -> Response:
    step = read_turn(call.services, call.tenant, OptimStepRequest, call.body())
    op_id = submit_turn(call.services, call.tenant, step, lambda _: to_optim_step(step))
    return json_response({"request_id": op_id, "model_id": step.model_id})
