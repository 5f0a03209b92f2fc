"""Waiting for an op to settle, however many wait: an event per poll, and one channel that wakes them."""

import asyncio
from collections.abc import Awaitable

from starlette.types import Receive

from openrl.domain.errors import OpNotFound
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import SETTLED
from openrl.domain.outcome import Record
from openrl.gateway.services import Services


async def awaited(
    services: Services, tenant: TenantId, op_id: OpId, seconds: float, hung_up: Awaitable[None]
) -> Record | None:
    """The record as soon as it is settled, or as it stands after `seconds`; None when the client hung up. Raises
    OpNotFound, for another tenant's op too."""
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    gone = asyncio.ensure_future(hung_up)
    gone.add_done_callback(lambda _: woken.set())
    try:
        while True:
            woken.clear()
            # Listen first and look second: what settles in between is then seen by one of the two.
            stop_listening = services.notices.subscribe(op_id, wake)
            try:
                record = await services.off_loop(_read, services, tenant, op_id)
                if record.status in SETTLED or not await _in_time(woken, until - loop.time()):
                    return record
            finally:
                stop_listening()
            if gone.done():
                return None
    finally:
        gone.cancel()


async def disconnected(receive: Receive) -> None:
    """Ends when the client hangs up. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _in_time(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _read(services: Services, tenant: TenantId, op_id: OpId) -> Record:
    record = services.ledger.read(op_id)
    if record is None or record.tenant != tenant:
        raise OpNotFound(op_id)
    return record
