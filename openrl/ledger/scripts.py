"""The ledger's scripts in Redis: every one atomic, on the server's own clock, and one round trip.

They make up keys from the prefix, so a cluster needs a prefix with a `{hash tag}`.
"""

from collections.abc import Callable
from importlib import resources
from typing import Any, Final

import redis

from openrl.domain.ids import WorkerId
from openrl.ledger.census import MEMBERS_TOLD
from openrl.ledger.outage import told_apart
from openrl.ledger.port import BELLS_AT_LEAST, SLOTS_FOR_A_BELL, UNSERVED_SLOTS

_HEADS: Final = ("rows.lua", "lines.lua", "joins.lua", "batches.lua")
_NAMES: Final = (
    *("append", "skip", "claim", "renew", "settle", "give_back", "cancel", "sweep"),
    *("alive", "loads", "release", "leave", "lapse", "journal", "snapshot", "forget", "place", "retire"),
    *("census", "life"),
    *("open_batch", "close_batch", "call_off"),
)


class Scripts:
    """The scripts by name, for the keys under one prefix. Raise LedgerUnreachable."""

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        *,
        ring_again_seconds: float = 0.0,
        clock_offset: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._client, self._prefix = client, prefix
        self._ring_again_seconds, self._clock_offset = ring_again_seconds, clock_offset
        self._scripts = _registered(client)

    def call(self, name: str, *args: Any) -> Any:
        with told_apart():
            head = (self._clock_offset(), self._ring_again_seconds)
            return self._scripts[name](keys=(self._prefix,), args=(*head, *args))


def lapse(client: redis.Redis, holder: WorkerId, prefix: str = "openrl:") -> None:
    """The process of a holder has ended, as its supervisor knows: its leases and claims are not waited for. The next
    sweep sees to them."""
    Scripts(client, prefix).call("lapse", holder)


def _registered(client: redis.Redis) -> dict[str, Callable[..., Any]]:
    here = resources.files("openrl.ledger")
    heads = ((here / name).read_text() for name in _HEADS)
    bells = {"SLOTS_FOR_A_BELL": SLOTS_FOR_A_BELL, "BELLS_AT_LEAST": BELLS_AT_LEAST}
    numbers = {"UNSERVED_SLOTS": UNSERVED_SLOTS, "MEMBERS_TOLD": MEMBERS_TOLD, **bells}
    head = "\n".join((*(f"local {name} = {number}" for name, number in numbers.items()), *heads, ""))
    return {name: client.register_script(head + (here / f"{name}.lua").read_text()) for name in _NAMES}
