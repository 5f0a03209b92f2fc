"""Keeps claims and leases alive while engines work, and tells the work when a claim was lost."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openrl.domain.ids import OpId
from openrl.ledger.port import Held, Ledger

log = logging.getLogger(__name__)


class Keeper:
    """`renew` is to be called several times within the ledger's hold time (a Ticker does)."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._kept: dict[OpId, tuple[Held, Callable[[OpId], None]]] = {}
        self._takes = ""  #: the queue whose fresh runs may be placed here; empty while there is none

    def take(self, queue: str) -> None:
        """Fresh runs of that queue may be placed here from now on; of none where it is empty."""
        self._takes = queue
        # Signal handlers call this: they may have interrupted whoever uses the connection.
        threading.Thread(target=self._ledger.stay, args=(queue,), name="take", daemon=True).start()

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
        self._ledger.stay(self._takes)
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
