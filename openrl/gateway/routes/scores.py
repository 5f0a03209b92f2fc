"""OpenRL's own API: texts scored by reward functions, and how any op stands."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from openrl.domain.errors import OpNotFound
from openrl.domain.ids import OpId
from openrl.domain.op import SETTLED
from openrl.domain.outcome import Failure, Record, Scores
from openrl.gateway.admission import submit_score
from openrl.gateway.call import GONE, TEXTS_BYTES, Call, answered, json_response, services_of, tenant_of
from openrl.gateway.depth import life_fields
from openrl.gateway.futures import awaited, disconnected
from openrl.gateway.limits import read_body
from openrl.gateway.offers import require_offered
from openrl.gateway.services import Services
from openrl.wire.base import read_json
from openrl.wire.future import result_fields
from openrl.wire.score import ScoreRequest, to_score

router = APIRouter(prefix="/openrl/v1")


@router.post("/score")
async def score(request: Request) -> Response:
    return await answered(request, _score, limit=TEXTS_BYTES)


@router.get("/ops/{op}")
async def get_op(
    request: Request, op: str, wait_seconds: Annotated[float, Query(ge=0, le=40)] = 0.0, life: bool = False
) -> Response:
    """How the op stands, as soon as it is settled or when the time is up; with `life`, what it has been through."""
    await read_body(request, 0)
    services, hung_up = services_of(request), disconnected(request.receive)
    record = await awaited(services, tenant_of(request), OpId(op), wait_seconds, hung_up)
    if record is None:
        return GONE
    told = await services.off_loop(_life, services, record) if life else {}
    return json_response(_op_fields(record) | told)


def _score(call: Call) -> Response:
    wanted = read_json(ScoreRequest, call.body())
    action = to_score(wanted)
    offers, known = call.services.settings.reward, call.services.rewards()
    require_offered(wanted.reward, wanted.params, offers, known, field="reward", params_field="params")
    return json_response({"op_id": submit_score(call.services, call.tenant, wanted.key, action)})


def _life(services: Services, record: Record) -> dict[str, Any]:
    life = services.ledger.life(record.id)
    if life is None:
        raise OpNotFound(record.id)
    why = None if record.status in SETTLED else services.why_waiting(record)
    return life_fields(record, life, services.ledger.place(record.id), why)


def _op_fields(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {"op_id": record.id, "kind": record.kind, "status": record.status}
    if isinstance(record.result, Scores):  # other results are the SDK's business, at retrieve_future
        fields["result"] = result_fields(record.kind, record.result)
    if record.failure is not None:
        fields["error"] = _error_fields(record.failure)
    return fields


def _error_fields(failure: Failure) -> dict[str, str]:
    return {"error": failure.error, "message": failure.message, "category": failure.category}
