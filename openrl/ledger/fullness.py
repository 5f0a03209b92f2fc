"""How full the broker's memory is, where it has a bound. New work is refused before it is full: what is there already
needs the rest to come to its end."""

import time
from collections.abc import Callable
from typing import Final

import redis

from openrl.domain.errors import LedgerFull
from openrl.ledger.outage import told_apart

FULL: Final = 0.9
ASK_EVERY_SECONDS: Final = 1.0


class Fullness:
    """Safe between threads."""

    def __init__(self, client: redis.Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: tuple[float, float | None] = (float("-inf"), None)

    def share(self) -> float | None:
        """As it was about a second ago; None without a bound, or where the broker does not tell. Raises
        LedgerUnreachable."""
        asked, share = self._known
        if self._clock() - asked < ASK_EVERY_SECONDS:
            return share
        self._known = (self._clock(), self._ask())
        return self._known[1]

    def check(self) -> None:
        """Raises LedgerFull."""
        share = self.share()
        if share is not None and share >= FULL:
            raise LedgerFull(f"{share:.0%} of the broker's memory is in use")

    def _ask(self) -> float | None:
        with told_apart():
            try:
                told = self._client.info("memory")
            except redis.ResponseError:  # some brokers keep it to themselves
                return None
        limit = int(told.get("maxmemory", 0))
        return int(told["used_memory"]) / limit if limit else None
