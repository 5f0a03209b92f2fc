"""OpenRL's own API: batches of rollouts, created, watched, called off."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import BatchId
from openrl.gateway.batches import batch_of, call_off, create, state_of
from openrl.gateway.call import Call, answered, json_response, services_of, tenant_of
from openrl.gateway.limits import read_body
from openrl.gateway.streams import events
from openrl.wire.base import INT64, read_json
from openrl.wire.rollouts import RolloutRequest

router = APIRouter(prefix="/openrl/v1")

BATCH_BYTES: Final = 32_000_000
#: Proxies must pass events on as they come.
STREAMED: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


@router.post("/rollouts")
async def create_rollouts(request: Request) -> Response:
    return await answered(request, _create, limit=BATCH_BYTES)


@router.get("/rollouts/{batch}")
async def get_rollouts(request: Request, batch: str) -> Response:
    return await answered(request, lambda call: _state(call, BatchId(batch)))


@router.post("/rollouts/{batch}/cancel")
async def cancel_rollouts(request: Request, batch: str) -> Response:
    return await answered(request, lambda call: _cancel(call, BatchId(batch)))


@router.get("/rollouts/{batch}/events")
async def rollout_events(
    request: Request, batch: str, after: Annotated[int | None, Query(ge=0, le=INT64)] = None
) -> Response:
    await read_body(request, 0)
    services, tenant, batch_id = services_of(request), tenant_of(request), BatchId(batch)
    cursor = _cursor(request, after)
    whole = await services.off_loop(batch_of, services, tenant, batch_id)  # a refusal is an answer, not an event
    if cursor > whole.groups:
        raise FieldInvalid("after", f"is {cursor}, but the events of this batch end with {whole.groups}")
    stream = events(services, tenant, batch_id, cursor)
    return StreamingResponse(stream, headers=STREAMED, media_type="text/event-stream")


def _cursor(request: Request, after: int | None) -> int:
    """`after`, else where an event stream that comes again says it was, else the start."""
    if after is not None:
        return after
    last = request.headers.get("last-event-id", "").strip()
    if not last:
        return 0
    if not last.isascii() or not last.isdecimal() or len(last) > len(str(INT64)) or int(last) > INT64:
        raise FieldInvalid("Last-Event-ID", f"{last[:50]!r} is not the id of an event of this batch")
    return int(last)


def _create(call: Call) -> Response:
    batch = create(call.services, call.tenant, read_json(RolloutRequest, call.body()))
    return json_response({"batch_id": batch.id, "groups": batch.groups})


def _state(call: Call, batch_id: BatchId) -> Response:
    return json_response(state_of(call.services, batch_of(call.services, call.tenant, batch_id)))


def _cancel(call: Call, batch_id: BatchId) -> Response:
    batch = batch_of(call.services, call.tenant, batch_id)
    return json_response(state_of(call.services, batch if batch.over else call_off(call.services, batch)))
