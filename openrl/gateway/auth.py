"""The API key, before anything else of a request is looked at."""

from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from openrl.domain.errors import KeyRejected, OpenRLError
from openrl.domain.ids import TenantId
from openrl.gateway.faults import response_of
from openrl.gateway.services import Services
from openrl.telemetry import logs

#: Without a key: what load balancers ask.
OPEN_PATHS: Final = frozenset({"/api/v1/healthz"})


class KeyCheck:
    """ASGI middleware: puts the tenant of the key into the scope, or answers 401."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            return await self._app(scope, receive, send)
        try:
            scope["tenant"] = await self._tenant(HTTPConnection(scope))
        except OpenRLError as error:
            return await response_of(error)(scope, receive, send)
        with logs.about(tenant=scope["tenant"]):
            return await self._app(scope, receive, send)

    async def _tenant(self, connection: HTTPConnection) -> TenantId:
        secret = connection.headers.get("x-api-key", "")
        if not secret:
            raise KeyRejected("is missing; send the key that this server gave you")
        services: Services = connection.app.state.services
        known = services.keys.known(secret)
        return known if known is not None else await services.off_loop(services.tenant, secret)
