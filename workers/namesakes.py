"""Earlier processes of this worker, where the operator gave it a name of its own (`--name`, OPENRL_WORKER_ID): whoever
has the name now knows that they have ended, and nobody has to wait until what they held lapses."""

import logging
import os

import redis

from openrl.domain.ids import WorkerId
from openrl.ledger.roster import RedisRoster
from openrl.ledger.scripts import lapse

log = logging.getLogger(__name__)


def bury_namesakes(client: redis.Redis, worker: WorkerId) -> None:
    """What they held is taken back by the next sweep, and they count no more. Nothing where the worker has no name."""
    if not os.environ.get("OPENRL_WORKER_ID"):
        return
    roster = RedisRoster(client)
    name = _name(worker)
    for other in roster.workers():
        if other.id != worker and _name(other.id) == name:
            lapse(client, other.id)
            roster.leave(other.id)
            log.info("an earlier process of this worker is gone: %s", other.id, extra={"action": "start"})


def _name(worker: WorkerId) -> str:
    """Without what tells its processes apart."""
    return worker.rpartition("-")[0]
