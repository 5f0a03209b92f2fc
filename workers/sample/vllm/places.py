"""Which sample vLLM gets next, where more are wanted than it draws at once: in turn between tenants and then between a
tenant's samplers. vLLM itself takes first who came first, whoever has a thousand before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from workers.rotation import Rotation
from workers.sample.request import QUANTUM, SampleRequest


@dataclass(frozen=True, slots=True)
class _Wish:
    tokens: int
    place: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Places:
    """So many at once. For the engine's event loop only."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: Rotation[_Wish] = Rotation(QUANTUM, over=lambda wish: wish.place.done())

    @asynccontextmanager
    async def taken(self, request: SampleRequest, tokens: int) -> AsyncIterator[None]:
        """Inside, one place is the caller's, which is charged so many tokens."""
        wish = _Wish(tokens)
        self._waiting.add(wish, tenant=request.tenant, owner=request.sampler)
        self._hand_out()
        try:
            await wish.place
            yield
        finally:
            if not wish.place.cancelled():  # by whoever gave up waiting
                self._free += 1
                self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (wish := self._waiting.first()) is not None:
            self._free -= 1
            self._waiting.charge(wish.tokens, gone=True)
            wish.place.set_result(None)
