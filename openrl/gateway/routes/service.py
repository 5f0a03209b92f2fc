"""What the service is and how its SDK clients should behave."""

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from openrl.gateway.awaited import awaited_names
from openrl.gateway.call import Call, answered, json_response
from openrl.gateway.limits import read_body

router = APIRouter(prefix="/api/v1")

#: Fetched once by each SDK client. Compression costs more than it saves on the way from a laptop to its own machine.
CLIENT_CONFIG: dict[str, Any] = {"parallel_fwdbwd_chunks": True, "proto_compress_fwdbwd": False}
CHUNK_BYTES: Final = 5_000_000
DYNAMIC_CONFIG: dict[str, Any] = {"sample_cancel_enabled": True}


@router.get("/healthz")
async def healthz() -> Response:
    return json_response({"status": "ok"})


@router.post("/client/config")
async def client_config(request: Request) -> Response:
    return await answered(request, _client_config)


@router.post("/client/dynamic_config")
async def client_dynamic_config(request: Request) -> Response:
    return await answered(request, lambda _: json_response(DYNAMIC_CONFIG))


@router.get("/get_server_capabilities")
async def get_server_capabilities(request: Request) -> Response:
    return await answered(request, _capabilities)


@router.post("/telemetry")
async def telemetry(request: Request) -> Response:
    """Taken and forgotten: events carry request headers, the API key among them, and must not be kept or logged."""
    await read_body(request, request.app.state.services.body_bytes)
    return json_response({"status": "accepted"})


def _client_config(call: Call) -> Response:
    """Chunks are kept well below the size that a body may have."""
    chunk = {"fwdbwd_max_chunk_bytes_count": min(CHUNK_BYTES, call.services.body_bytes // 2)}
    return json_response({**CLIENT_CONFIG, **chunk, **call.services.client_config})


def _capabilities(call: Call) -> Response:
    """Of a model that is waited for nothing but its names are known."""
    models: list[dict[str, Any]] = [
        {
            "model_name": name,
            "max_context_length": card.context_length,
            "trainable": card.trainable,
            "sampleable": card.sampleable,
        }
        for card in call.services.cards()
        for name in (card.name, *card.aliases)
    ]
    told = {model["model_name"] for model in models}
    awaited = [{"model_name": name} for name in awaited_names(call.services.settings) if name not in told]
    return json_response({"supported_models": models + awaited})
