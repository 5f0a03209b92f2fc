"""Sessions: begun, kept alive, finished, listed."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from openrl.domain.ids import SessionId
from openrl.gateway.call import Call, answered, json_response
from openrl.wire.base import INT64, read_json
from openrl.wire.session import CreateSession, FinishSession, Heartbeat

router = APIRouter(prefix="/api/v1")


@router.post("/create_session")
async def create_session(request: Request) -> Response:
    return await answered(request, _create)


@router.post("/session_heartbeat")
async def session_heartbeat(request: Request) -> Response:
    return await answered(request, _heartbeat)


@router.post("/sessions/{session}/finish")
async def finish_session(request: Request, session: str) -> Response:
    return await answered(request, lambda call: _finish(call, SessionId(session)))


@router.get("/sessions")
async def list_sessions(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    offset: Annotated[int, Query(ge=0, le=INT64)] = 0,
) -> Response:
    return await answered(
        request, lambda call: json_response({"sessions": call.services.catalog.sessions(call.tenant, limit, offset)})
    )


@router.get("/sessions/{session}")
async def get_session(request: Request, session: str) -> Response:
    return await answered(request, lambda call: _get(call, SessionId(session)))


def _create(call: Call) -> Response:
    wanted = read_json(CreateSession, call.body())
    session = call.services.catalog.create_session(
        call.tenant,
        tags=wanted.tags,
        user_metadata=wanted.user_metadata or {},
        display_name=wanted.display_name,
        sdk_version=wanted.sdk_version,
        project_id=wanted.project_id,
    )
    return json_response({"type": "create_session", "session_id": session})


def _heartbeat(call: Call) -> Response:
    call.services.catalog.touch_session(call.tenant, SessionId(read_json(Heartbeat, call.body()).session_id))
    return json_response({"type": "session_heartbeat"})


def _finish(call: Call, session: SessionId) -> Response:
    end = read_json(FinishSession, call.body())
    call.services.catalog.finish_session(call.tenant, session, end.reason.type, end.detail)
    return json_response({})


def _get(call: Call, session: SessionId) -> Response:
    catalog = call.services.catalog
    found = catalog.session(call.tenant, session)
    return json_response(
        {
            "training_run_ids": catalog.session_runs(call.tenant, session),
            "sampler_ids": catalog.session_samplers(call.tenant, session),
            "user_metadata": found.user_metadata,
            "display_name": found.display_name,
        }
    )
