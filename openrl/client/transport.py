"""HTTP with patience, blocking and not: a gateway that restarts is not noticed. Knows no endpoint."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from typing import Any, Final

import httpx

from openrl.client.errors import RequestRefused, ServiceUnreachable
from openrl.client.events import Event, Reading

#: Pauses between tries, in seconds; the last one repeats.
PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
#: Not the request's fault: the server is busy, restarting or cut off from its broker.
PASSING: Final = frozenset({408, 425, 429})
EARLY_END: Final = "the stream ended early"


class Tries:
    """The tries of one request: told how each failed, it answers how many seconds to pause before the next."""

    def __init__(self, url: str, patience_seconds: float) -> None:
        self._url, self._patience = url, patience_seconds
        self.begin()

    def begin(self) -> None:
        """Patience is whole again, from the next failure on: a caller may take its time between two reads."""
        self._failing_since: float | None = None
        self._pauses = _pauses()

    def failed(self, last: str, status: int = 0) -> float:
        """Raises RequestRefused where trying again would not help, or has not (with a server that is there);
        ServiceUnreachable when patience is at an end."""
        if 0 < status < 500 and status not in PASSING:
            raise RequestRefused(status, last)
        now, pause = time.monotonic(), next(self._pauses)
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since + pause <= self._patience:
            return pause
        if 0 < status < 500:
            raise RequestRefused(status, last)
        raise ServiceUnreachable(self._url, self._patience, last)

    def refused(self, response: httpx.Response) -> float:
        return self.failed(_detail(response), response.status_code)

    def broken(self, error: httpx.TransportError) -> float:
        return self.failed(f"{type(error).__name__}: {error}")


class Transport:
    """Every request must be one that may be sent twice."""

    def __init__(
        self, base_url: str, api_key: str, *, patience_seconds: float, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url, self._patience = base_url.rstrip("/"), patience_seconds
        self._http = httpx.Client(**_options(self._url, api_key), transport=transport)

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """The answer's JSON; the request's body is `json`, or `content` as it stands. Raises RequestRefused, or
        ServiceUnreachable when patience is at an end."""
        tries = Tries(self._url, self._patience)
        while True:
            try:
                response = self._http.request(method, path, json=json, content=content, params=params)
            except httpx.TransportError as error:
                pause = tries.broken(error)
            else:
                if response.is_success:
                    return response.json()
                pause = tries.refused(response)
            time.sleep(pause)

    def events(self, path: str) -> Generator[Event, None, None]:
        """Server-sent events up to the last, each once: a stream that breaks is opened again behind what was read."""
        tries, reading = Tries(self._url, self._patience), Reading()
        while True:
            try:
                with self._http.stream("GET", path, headers=reading.reopen()) as response:
                    if response.is_success:
                        for data in response.iter_bytes():
                            tries.begin()
                            yield from reading.feed(data)
                            if reading.over:
                                return
                        pause = tries.failed(EARLY_END)
                    else:
                        response.read()
                        pause = tries.refused(response)
            except httpx.TransportError as error:
                pause = tries.broken(error)
            time.sleep(pause)


class AsyncTransport:
    """`Transport`, without blocking."""

    def __init__(
        self, base_url: str, api_key: str, *, patience_seconds: float, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._url, self._patience = base_url.rstrip("/"), patience_seconds
        self._http = httpx.AsyncClient(**_options(self._url, api_key), transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(
        self, method: str, path: str, *, json: object = None, params: Mapping[str, Any] | None = None
    ) -> Any:
        tries = Tries(self._url, self._patience)
        while True:
            try:
                response = await self._http.request(method, path, json=json, params=params)
            except httpx.TransportError as error:
                pause = tries.broken(error)
            else:
                if response.is_success:
                    return response.json()
                pause = tries.refused(response)
            await asyncio.sleep(pause)

    async def events(self, path: str) -> AsyncGenerator[Event, None]:
        tries, reading = Tries(self._url, self._patience), Reading()
        while True:
            try:
                async with self._http.stream("GET", path, headers=reading.reopen()) as response:
                    if response.is_success:
                        async for data in response.aiter_bytes():
                            tries.begin()
                            for event in reading.feed(data):
                                yield event
                            if reading.over:
                                return
                        pause = tries.failed(EARLY_END)
                    else:
                        await response.aread()
                        pause = tries.refused(response)
            except httpx.TransportError as error:
                pause = tries.broken(error)
            await asyncio.sleep(pause)


def _options(url: str, api_key: str) -> dict[str, Any]:
    return {"base_url": url, "headers": {"x-api-key": api_key}, "timeout": httpx.Timeout(60.0, connect=5.0)}


def _pauses() -> Iterator[float]:
    yield from PAUSES
    while True:
        yield PAUSES[-1]


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200] or f"HTTP {response.status_code}"
