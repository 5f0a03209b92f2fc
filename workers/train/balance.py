"""Gives runs away where this worker has more than its share, because another one has joined.

A run is placed where fewest are when its first op is rung. This makes up for who comes later: one run at a time is let
go, and its next op is rung for all.
"""

import logging
import time
from collections.abc import Callable
from math import ceil

from openrl.domain.ids import RunId
from openrl.ledger.port import ACTIVE_SECONDS, Ledger, Loads
from workers.train.residents import Residents
from workers.train.snapshots import Snapshots

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0


def surplus(loads: Loads) -> int:
    """Active runs beyond this worker's share, which is rounded up so that nobody gives away what would come back."""
    everybody = (loads.mine, *loads.others)
    return max(0, loads.mine - ceil(sum(everybody) / len(everybody)))


class Balance:
    def __init__(
        self,
        ledger: Ledger,
        residents: Residents,
        snapshots: Snapshots,
        clock: Callable[[], float] = time.monotonic,
        *,
        stays: Callable[[RunId], bool] = lambda run: False,
    ) -> None:
        """A run that `stays` is too large to be moved for balance."""
        self._stays = stays
        self._ledger, self._residents, self._snapshots, self._clock = ledger, residents, snapshots, clock

    def tick(self) -> None:
        """Let go of one active run, if there is one too many."""
        if not surplus(self._ledger.loads()):
            return
        for run in self._residents.active(self._clock(), ACTIVE_SECONDS):
            if not self._stays(run) and self._snapshots.hand_over(run):
                log.info("handed over: others have fewer runs", extra={"action": "hand_over", "run": run})
                return
