"""Gives runs away where this worker has more than its share, because another one has joined.

A run is placed where fewest are when its first op is rung. This makes up for who comes later: one run at a time is let
go, and its next op is rung for all.
"""

import logging
from math import ceil

from openrl.ledger.port import Ledger, Loads
from workers.train.residents import Residents
from workers.train.snapshots import Snapshots

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0


def surplus(loads: Loads) -> int:
    """Runs that this worker has beyond its share; a share is rounded up, so that nobody gives away what comes back."""
    everybody = (loads.mine, *loads.others)
    return max(0, loads.mine - ceil(sum(everybody) / len(everybody)))


class Balance:
    def __init__(self, ledger: Ledger, residents: Residents, snapshots: Snapshots) -> None:
        self._ledger, self._residents, self._snapshots = ledger, residents, snapshots

    def tick(self) -> None:
        """Let go of one run, if there is one too many: the one that was unused for longest and can be spared."""
        if not surplus(self._ledger.loads()):
            return
        for run in self._residents.longest_unused():
            if self._snapshots.hand_over(run):
                log.info("handed over: others have fewer runs", extra={"action": "hand_over", "run": run})
                return
