"""Keeps claims and leases alive while engines work, and tells the work when a claim was lost."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openrl.domain.ids import OpId
from openrl.ledger.port import Brings, Held, Ledger

log = logging.getLogger(__name__)


class Keeper:
    """`renew` is to be called several times within the ledger's hold time (a Ticker does)."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._kept: dict[OpId, tuple[Held, Callable[[OpId], None]]] = {}
        self._offer: tuple[str, Brings | None] = ("", None)
        self.closed = False  #: what is claimed from now on is handed back at once

    def offer(self, takes: str = "", brings: Brings | None = None) -> None:
        """From now on fresh runs of the queue `takes` may be placed here, none where it is empty, and its line has the
        slots that this worker `brings`."""
        self._offer = (takes, brings)
        # Signal handlers call this: they may have interrupted whoever uses the connection.
        threading.Thread(target=self._ledger.stay, args=self._offer, name="offer", daemon=True).start()

    def close(self) -> None:
        """The process is going away: no runs are placed here and no slots brought any more, and no op is begun."""
        self.closed = True
        self.offer()

    @contextmanager
    def keeping(self, held: Held, lost: Callable[[OpId], None]) -> Iterator[None]:
        """Renew the claim until the block ends; `lost` is called at most once, from another thread."""
        entry = (held, lost)
        with self._lock:
            self._kept[held.op.id] = entry
        try:
            yield
        finally:
            with self._lock:
                if self._kept.get(held.op.id) is entry:
                    del self._kept[held.op.id]

    def renew(self) -> None:
        self._ledger.stay(*self._offer)
        with self._lock:
            kept = dict(self._kept)
        if not kept:
            return
        for op_id in self._ledger.renew([held for held, _ in kept.values()]):
            with self._lock:
                if self._kept.get(op_id) is not kept[op_id]:  # its work ended while we asked
                    continue
                del self._kept[op_id]
            log.warning("claim lost", extra={"action": "renew", "op": op_id})
            kept[op_id][1](op_id)
