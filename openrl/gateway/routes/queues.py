"""OpenRL's own API: what stands in the queues."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.gateway.call import Call, answered, json_response
from openrl.gateway.depth import queue_fields

router = APIRouter(prefix="/openrl/v1")


@router.get("/queues")
async def get_queues(request: Request) -> Response:
    return await answered(request, _queues)


def _queues(call: Call) -> Response:
    """The depth of each in all, and what the tenant has there itself."""
    services = call.services
    return json_response(queue_fields(services.queues(), services.workers(), services.models, call.tenant))
