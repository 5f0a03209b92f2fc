"""The groups of a batch as server-sent events, each once, from a place that a client may name again at any gateway."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson

from openrl.domain.errors import BatchNotFound, PassingError
from openrl.domain.ids import BatchId, OpId, TenantId
from openrl.gateway.batches import batch_of, group_of, state_of
from openrl.gateway.services import Services
from openrl.ledger.batches import Batch

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS: Final = 15.0
AGAIN_SECONDS: Final = 1.0  #: after the ledger did not answer
AT_ONCE: Final = 100  #: ids of groups looked up together
KEEP_ALIVE: Final = b": keep-alive\n\n"


async def events(services: Services, tenant: TenantId, batch_id: BatchId, cursor: int) -> AsyncIterator[bytes]:
    """Groups from the `cursor`th to settle on, then the end. A ledger that is away for a while is waited for."""
    woken, loop = asyncio.Event(), asyncio.get_running_loop()
    while True:
        woken.clear()
        # Listen first and look second: what settles in between is then seen by one of the two.
        stop_listening = services.notices.subscribe(batch_id, lambda: _wake(loop, woken))
        try:
            batch, ids = await services.off_loop(_look, services, tenant, batch_id, cursor)
            for op_id in ids:
                yield await services.off_loop(_group, services, batch, op_id, cursor + 1)
                cursor += 1
            if not ids and batch.over:
                yield await services.off_loop(_end, services, batch, cursor)
                return
            if not ids and not await _in_time(woken, KEEP_ALIVE_SECONDS):
                yield KEEP_ALIVE
        except PassingError as error:
            log.warning("%s", error, extra={"action": "stream", "batch": batch_id})
            yield KEEP_ALIVE
            await asyncio.sleep(AGAIN_SECONDS)
        except BatchNotFound as error:  # it expired before the client had read it
            yield _event("error", {"detail": str(error)})
            return
        finally:
            stop_listening()


def _look(services: Services, tenant: TenantId, batch_id: BatchId, cursor: int) -> tuple[Batch, list[OpId]]:
    """The batch first: what settles after is found the next time."""
    batch = batch_of(services, tenant, batch_id)
    return batch, services.ledger.settled_in(batch_id, cursor, AT_ONCE)


def _group(services: Services, batch: Batch, op_id: OpId, cursor: int) -> bytes:
    return _event("group", group_of(services, batch, op_id), cursor)


def _end(services: Services, batch: Batch, cursor: int) -> bytes:
    return _event("end", state_of(services, batch), cursor)


def _event(name: str, fields: dict[str, Any], cursor: int | None = None) -> bytes:
    at = b"" if cursor is None else b"id: %d\n" % cursor
    data = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    return b"%sevent: %s\ndata: %s\n\n" % (at, name.encode(), data)


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    loop.call_soon_threadsafe(woken.set)


async def _in_time(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
