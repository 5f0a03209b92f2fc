"""What a reward worker stands on beside the common station: the sandbox, and the work that scores in it."""

import logging
from contextlib import ExitStack

from openrl.config import Settings
from workers.reward.sandbox.nursery import Nursery
from workers.reward.work import RewardWork
from workers.station import Station, step

log = logging.getLogger(__name__)


def equip(here: Station, settings: Settings, closing: ExitStack) -> None:
    """Give the station its reward work. Raises SandboxFailed, SettingInvalid where the level cannot be had."""
    with step("sandbox"):
        nursery = Nursery(settings.worker.sandbox)
        closing.callback(nursery.close)
    log.info("sandbox level: %s", nursery.level, extra={"action": "start"})
    for name, why in nursery.listing.broken.items():
        log.error("reward function %s could not be loaded: %s", name, why, extra={"action": "start"})
    work = RewardWork(nursery, max_attempts=settings.ledger.max_attempts)
    closing.callback(work.close)
    here.works["reward"] = work
