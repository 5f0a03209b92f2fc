"""What an error looks like over HTTP: the only place that knows status codes of errors.

Every answer has a body, `{"detail": …}`: the SDK takes an empty 400 for a broken proxy and comes again.
"""

import logging
from typing import Final

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from openrl.domain.errors import (
    BodyInvalid,
    BodyTooLarge,
    CallerError,
    KeyRejected,
    NotFoundError,
    OpenRLError,
    OperatorError,
    PassingError,
)
from openrl.wire.base import fault_of

log = logging.getLogger(__name__)

#: The first row that fits counts. A PassingError is a 429 and not a 503, because the SDK asks again without a pause
#: after a 503, and waits longer and longer after a 429.
STATUS: Final[tuple[tuple[type[OpenRLError], int], ...]] = (
    (BodyInvalid, 400),
    (BodyTooLarge, 413),
    (KeyRejected, 401),
    (NotFoundError, 404),
    (CallerError, 422),
    (PassingError, 429),
    (OperatorError, 503),
)
RETRY_SECONDS: Final = 1


def status_of(error: OpenRLError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


def response_of(error: OpenRLError) -> Response:
    status = status_of(error)
    if isinstance(error, OperatorError):
        log.error("%s", error, extra={"action": "answer"})
    headers = {"retry-after": str(RETRY_SECONDS)} if status in (429, 503) else None
    return refusal(status, str(error), headers)


def refusal(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps({"detail": detail}), status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    app.add_exception_handler(OpenRLError, _on_ours)
    app.add_exception_handler(RequestValidationError, _on_parameters)
    app.add_exception_handler(HTTPException, _on_route)
    app.add_exception_handler(Exception, _on_bug)


async def _on_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, OpenRLError)
    return response_of(error)


async def _on_parameters(request: Request, error: Exception) -> Response:
    """A path or query parameter; FastAPI puts the place (`query`) before its name."""
    assert isinstance(error, RequestValidationError)
    faults = [{**each, "loc": tuple(each["loc"][1:])} for each in error.errors()]
    return response_of(fault_of(faults))


async def _on_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "no such endpoint on this server", 405: "the endpoint does not take this method"}
    detail = what.get(error.status_code, str(error.detail))
    return refusal(error.status_code, f"{request.method} {request.url.path}: {detail}")


async def _on_bug(request: Request, error: Exception) -> Response:
    """Starlette raises it again after this, so that the server logs it with its traceback."""
    return refusal(500, f"internal error ({type(error).__name__}); the server's log has more")
