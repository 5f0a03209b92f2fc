"""HTTP with patience: a gateway that restarts is not noticed. Knows no endpoint."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from openrl.client.errors import RequestRefused, ServiceUnreachable

#: Pauses between tries, in seconds; the last one repeats.
PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
#: Not the request's fault: the server is busy, restarting or cut off from its broker.
PASSING: Final = frozenset({408, 425, 429})


class Transport:
    """Every request must be one that may be sent twice."""

    def __init__(
        self, base_url: str, api_key: str, *, patience_seconds: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url, self._patience = base_url.rstrip("/"), patience_seconds
        self._http = httpx.Client(
            base_url=self._url,
            headers={"x-api-key": api_key},
            timeout=httpx.Timeout(60.0, connect=5.0),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def send(self, method: str, path: str, *, json: object = None, params: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON. Raises RequestRefused, or ServiceUnreachable when patience is at an end."""
        started = time.monotonic()
        for pause in _pauses():
            try:
                response = self._http.request(method, path, json=json, params=params)
            except httpx.TransportError as error:
                last = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return response.json()
                last = _detail(response)
                if response.status_code < 500 and response.status_code not in PASSING:
                    raise RequestRefused(response.status_code, last)
            if time.monotonic() - started + pause > self._patience:
                raise ServiceUnreachable(self._url, self._patience, last)
            time.sleep(pause)
        raise AssertionError("pauses never end")


def _pauses() -> Iterator[float]:
    yield from PAUSES
    while True:
        yield PAUSES[-1]


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200] or f"HTTP {response.status_code}"
