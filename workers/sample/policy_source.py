"""Where a worker's sample engine has its policy versions from: the depot, by way of a disk where that is far away."""

import logging
from collections.abc import Callable
from pathlib import Path

from openrl.config import Settings
from openrl.depot.filesystem import FsspecDepot
from workers.sample.fetching import Fetch, Patient
from workers.sample.policy_cache import PolicyCache

log = logging.getLogger(__name__)


def policy_source(depot: FsspecDepot, settings: Settings) -> tuple[Fetch, Callable[[], None]]:
    """Reads a version's files: KeyError for one that is not there, EngineBusy where the depot does not answer for long.
    And has whoever waits for the depot give up, before an engine is closed."""
    patient = Patient(depot.get_folder)
    folder, limit = settings.home / "policy-cache", settings.sample.policy_cache_mb * 1_000_000
    why_not = _why_not(depot, folder, limit)
    if why_not is not None:
        log.info("sampler weights are read from the depot: %s", why_not, extra={"action": "start"})
        return patient.get, patient.stop
    log.info("sampler weights are kept in %s, up to %.0f MB", folder, limit / 1e6, extra={"action": "start"})
    return PolicyCache(patient.get, folder, limit).get, patient.stop


def _why_not(depot: FsspecDepot, folder: Path, limit: int) -> str | None:
    if limit == 0:
        return "OPENRL_SAMPLE__POLICY_CACHE_MB is 0"
    if depot.folder is not None and _device(depot.folder) == _device(folder):
        return "it lies on the disk that a cache would lie on"
    return None


def _device(path: Path) -> int:
    """Of the nearest folder that is there."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    return there.stat().st_dev
