"""A request on its way through the gateway: read on the event loop, worked on in one hop on a thread."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from openrl.domain.ids import TenantId
from openrl.gateway.limits import decoded, read_body
from openrl.gateway.services import Services

log = logging.getLogger(__name__)

#: Nobody reads it: the client hung up.
GONE = Response(status_code=499)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    services: Services
    tenant: TenantId
    raw_body: bytes = b""
    encoding: str = ""

    def body(self) -> bytes:
        """Decompressed; blocking. Raises BodyInvalid, BodyTooLarge."""
        return decoded(self.raw_body, self.encoding, self.services.body_bytes)


async def answered(request: Request, work: Callable[[Call], Response]) -> Response:
    """Read the request's body and let `work` answer it on a thread."""
    services = services_of(request)
    try:
        body = await read_body(request, services.body_bytes)
    except ClientDisconnect:
        return GONE
    encoding = request.headers.get("content-encoding", "").lower()
    call = Call(services=services, tenant=tenant_of(request), raw_body=body, encoding=encoding)
    return await services.off_loop(work, call)


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def tenant_of(request: Request) -> TenantId:
    return TenantId(request.scope["tenant"])


def json_response(fields: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(fields), status, media_type="application/json")
