"""What a reward worker stands on beside the common station: the sandbox, the work that scores in it, and webhooks."""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from openrl.config import Reward, Settings
from openrl.domain.errors import SettingInvalid
from workers.reward.catalogue import Listing
from workers.reward.groups import Groups
from workers.reward.posting import poster
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.nursery import Nursery
from workers.reward.webhooks import NAME as WEBHOOK
from workers.reward.webhooks import Rules, Webhooks
from workers.reward.work import OP_SECONDS, RewardWork
from workers.station import Station, step

log = logging.getLogger(__name__)

LEAST_KEY_BYTES: Final = 16


def equip(here: Station, settings: Settings, closing: ExitStack) -> None:
    """Give the station its reward work. Raises SandboxFailed, SettingInvalid where the level or the key of webhooks
    cannot be had."""
    with step("sandbox"):
        nursery = Nursery(settings.worker.sandbox)
        closing.callback(nursery.close)
        _require_hidden(settings.home, nursery.readable)
    _tell(nursery.level, nursery.listing)
    withheld = withheld_at(nursery.level, settings.reward)
    work = RewardWork(nursery, max_attempts=settings.ledger.max_attempts, withheld=withheld)
    closing.callback(work.close)
    webhooks = {WEBHOOK} if settings.reward.webhook_urls else set()
    here.rewards = tuple(sorted((nursery.listing.functions.keys() - withheld.keys()) | webhooks))
    here.works["reward"] = _with_webhooks(work, here, settings)


def _with_webhooks(work: RewardWork, here: Station, settings: Settings) -> Groups:
    wish = settings.reward
    if not wish.webhook_urls:
        return Groups(work, here.ledger.read, group_seconds=OP_SECONDS)
    rules = Rules(urls=wish.webhook_urls, key=signing_key(wish.webhook_key), max_attempts=settings.ledger.max_attempts)
    webhooks = Webhooks(work, poster(seconds=wish.webhook_seconds, private=wish.webhook_private), rules)
    return Groups(webhooks, here.ledger.read, {WEBHOOK: webhooks.outcomes}, group_seconds=OP_SECONDS)


def withheld_at(level: Level, wish: Reward) -> Mapping[str, str]:
    """Functions that are not for clients here, and why."""
    if not wish.source:
        return {"source": "OPENRL_REWARD__SOURCE is not true"}
    if level is not Level.STRONG:
        return {"source": f"the sandbox is at level {level}, and source is run at level {Level.STRONG} only"}
    return {}


def signing_key(reference: str) -> bytes:
    """The key that lies there. Raises SettingInvalid."""
    name = "OPENRL_REWARD__WEBHOOK_KEY"
    kind, _, place = reference.partition(":")
    try:
        key = Path(place).read_bytes().strip() if kind == "file" else os.environ.get(place, "").encode()
    except OSError as error:
        raise SettingInvalid(name, f"{place} cannot be read: {error.strerror}") from None
    if len(key) < LEAST_KEY_BYTES:
        raise SettingInvalid(name, f"names no key of {LEAST_KEY_BYTES} bytes or more; webhooks are signed with it")
    return key


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
