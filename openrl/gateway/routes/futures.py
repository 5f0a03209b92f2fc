"""Results: waited for, read again, called off."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.domain.errors import BytesLost, FieldInvalid, OpCancelled, OperatorError, OpNotFound
from openrl.domain.ids import OpId
from openrl.domain.op import SETTLED, Sample, Status
from openrl.domain.outcome import BatchResult, Record, Sampled, failure_of
from openrl.gateway.call import GONE, Call, answered, json_response, services_of, tenant_of
from openrl.gateway.futures import awaited, disconnected
from openrl.gateway.limits import read_body
from openrl.gateway.services import Services
from openrl.telemetry import logs
from openrl.wire.base import read_json
from openrl.wire.future import CancelFuture, RetrieveFuture, answer_of, failure_fields

router = APIRouter(prefix="/api/v1")

REQUEST_BYTES: Final = 65_536
#: The SDK asks again at once after a 5xx; this keeps it from spinning while the operator puts things right.
CALM_SECONDS: Final = 1.0


@router.post("/retrieve_future")
async def retrieve_future(request: Request) -> Response:
    try:
        return await _retrieve(request)
    except BytesLost as error:  # it will not come back: an answer, not a fault to ask again about
        return json_response(failure_fields(failure_of(error)))
    except OperatorError:
        await asyncio.sleep(CALM_SECONDS)
        raise


@router.post("/cancel_future")
async def cancel_future(request: Request) -> Response:
    return await answered(request, _cancel)


async def _retrieve(request: Request) -> Response:
    services = services_of(request)
    wanted = read_json(RetrieveFuture, await read_body(request, REQUEST_BYTES))
    seconds = services.settings.gateway.poll_seconds
    hung_up = disconnected(request.receive)
    with logs.about(op=wanted.request_id):
        record = await awaited(services, tenant_of(request), OpId(wanted.request_id), seconds, hung_up)
    if record is None:
        return GONE
    if record.status not in SETTLED:
        return json_response(await services.off_loop(_queue_state, services, record), 408)
    # Arrays may be large: spelling them out must not hold up the loop.
    large = isinstance(record.result, BatchResult | Sampled)
    media_type, body = await services.off_loop(answer_of, record) if large else answer_of(record)
    return Response(body, media_type=media_type)


def _queue_state(services: Services, record: Record) -> dict[str, str]:
    why = services.why_waiting(record) if record.status is Status.WAITING else None
    if why is None:
        return {"queue_state": "active"}
    return {"queue_state": "paused_capacity", "queue_state_reason": why}


def _cancel(call: Call) -> Response:
    """Samples only: a run could not go on as if a turn had never been."""
    op_id = OpId(read_json(CancelFuture, call.body()).request_id)
    record = call.services.ledger.read(op_id)
    if record is None or record.tenant != call.tenant:
        raise OpNotFound(op_id)
    if record.kind != Sample.kind:
        raise FieldInvalid("request_id", f"is a {record.kind}; only samples can be cancelled")
    if record.status not in SETTLED:
        call.services.ledger.cancel(op_id, OpCancelled())
    return json_response({})
