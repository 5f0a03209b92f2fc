"""The client for callers that must not be blocked."""

from types import TracebackType
from typing import Self

import httpx

from openrl.client.async_rollouts import AsyncRollouts
from openrl.client.client import address
from openrl.client.transport import AsyncTransport


class AsyncClient:
    """The rollouts of `Client`, awaited, with the same arguments. To be used in one event loop."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        patience_seconds: float = 300.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        url, key = address(base_url, api_key)
        self._transport = AsyncTransport(url, key, patience_seconds=patience_seconds, transport=transport)
        self.rollouts = AsyncRollouts(self._transport)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
