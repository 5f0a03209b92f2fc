"""What a reward worker stands on beside the common station: the sandbox, and the work that scores in it."""

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from openrl.config import Settings
from openrl.domain.errors import SettingInvalid
from workers.reward.catalogue import Listing
from workers.reward.groups import Groups
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.nursery import Nursery
from workers.reward.work import OP_SECONDS, RewardWork
from workers.station import Station, step

log = logging.getLogger(__name__)


def equip(here: Station, settings: Settings, closing: ExitStack) -> None:
    """Give the station its reward work. Raises SandboxFailed, SettingInvalid where the level cannot be had."""
    with step("sandbox"):
        nursery = Nursery(settings.worker.sandbox)
        closing.callback(nursery.close)
        _require_hidden(settings.home, nursery.readable)
    _tell(nursery.level, nursery.listing)
    work = RewardWork(nursery, max_attempts=settings.ledger.max_attempts)
    closing.callback(work.close)
    here.rewards = tuple(sorted(nursery.listing.functions))
    here.works["reward"] = Groups(work, here.ledger.read, group_seconds=OP_SECONDS)


def _tell(level: Level, listing: Listing) -> None:
    log.info("sandbox level: %s", level, extra={"action": "start"})
    for name, why in listing.broken.items():
        log.error("reward function %s could not be loaded: %s", name, why, extra={"action": "start"})


def _require_hidden(home: Path, readable: Iterable[Path]) -> None:
    """Raises SettingInvalid where code in the sandbox could read keys and checkpoints."""
    for path in readable:
        if home.resolve().is_relative_to(path):
            problem = f"lies in {path}, which model output may read while it is scored; choose another place"
            raise SettingInvalid("OPENRL_DATA_DIR", problem)
