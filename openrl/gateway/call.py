"""A request on its way through the gateway: read on the event loop, worked on in one hop on a thread."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from openrl.domain.errors import BodyTooLarge
from openrl.domain.ids import TenantId
from openrl.gateway.limits import decoded, read_within
from openrl.gateway.services import Services

#: JSON takes some hundred times its size in memory, and the interpreter while it is checked: each kind of request gets
#: what an honest one needs.
SMALL_BYTES: Final = 1_000_000
PROMPT_BYTES: Final = 8_000_000
TEXTS_BYTES: Final = 16_000_000
#: Nobody reads it: the client hung up.
GONE = Response(status_code=499)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    services: Services
    tenant: TenantId
    limit: int  #: bytes of the body, before and after decompression
    raw_body: bytes = b""
    encoding: str = ""

    def body(self) -> bytes:
        """Decompressed; blocking. Raises BodyInvalid, BodyTooLarge."""
        return decoded(self.raw_body, self.encoding, self.limit)


async def answered(
    request: Request,
    work: Callable[[Call], Response],
    *,
    limit: int = SMALL_BYTES,
    too_large: Callable[[Call], object] | None = None,
) -> Response:
    """Read the request's body, of `limit` bytes at most, and let `work` answer it on a thread. `too_large` is told the
    beginning of a body that is refused for its size. Raises BodyTooLarge and whatever `work` raises."""
    services = services_of(request)
    limit = min(limit, services.body_bytes)
    try:
        body, whole = await read_within(request, limit)
    except ClientDisconnect:
        return GONE
    encoding = request.headers.get("content-encoding", "").lower()
    call = Call(services=services, tenant=tenant_of(request), limit=limit, raw_body=body, encoding=encoding)
    if whole:
        return await services.off_loop(work, call)
    if too_large is not None:
        await services.off_loop(too_large, call)
    raise BodyTooLarge(limit)


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def tenant_of(request: Request) -> TenantId:
    return TenantId(request.scope["tenant"])


def json_response(fields: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(fields), status, media_type="application/json")
