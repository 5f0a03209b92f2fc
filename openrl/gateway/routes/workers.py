"""OpenRL's own API: who is at work, and how busy their devices are."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.gateway.call import Call, answered, json_response
from openrl.wire.worker import worker_fields

router = APIRouter(prefix="/openrl/v1")


@router.get("/workers")
async def get_workers(request: Request) -> Response:
    return await answered(request, _workers)


def _workers(call: Call) -> Response:
    """As the workers last announced it, some seconds ago at most."""
    return json_response([worker_fields(worker) for worker in call.services.roster.workers()])
