"""Frees what nobody will need any longer: checkpoints past their time, what only a session that is over needed, and
sampler weights without a name that their run has gone far past.

Every train worker does it; twice does no harm. Bytes go first and their row last, so that a row is left for whatever a
crash leaves. Sampler weights are retired in the ledger before: a sample finds them whole or is refused.
"""

import logging
from datetime import UTC, datetime, timedelta
from itertools import islice

from openrl.catalog.repository import Catalog
from openrl.config import Retention
from openrl.depot.port import Depot
from openrl.domain.checkpoint import Checkpoint
from openrl.domain.errors import TurnUnsettled
from openrl.domain.ids import DepotKey
from openrl.domain.session import Session
from openrl.ledger.port import Ledger

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
AT_MOST = 100  #: checkpoints, sessions or policy versions in one call
UNNAMED = "policies/"  #: where weights of samplers lie that were saved without a name


def expire(catalog: Catalog, ledger: Ledger, depot: Depot) -> None:
    """Delete checkpoints past their time: new samples of them are refused, and those under way have theirs."""
    removed = passed = 0
    while removed < AT_MOST and (expired := catalog.expired_checkpoints(AT_MOST - removed, skip=passed)):
        gone = sum(_expire(catalog, ledger, depot, checkpoint) for checkpoint in expired)
        removed, passed = removed + gone, passed + len(expired) - gone


def _expire(catalog: Catalog, ledger: Ledger, depot: Depot, checkpoint: Checkpoint) -> bool:
    """False where samples of it are under way; no more of them come."""
    if not ledger.retire(checkpoint.key, 0.0):
        ledger.retire(checkpoint.key, None)
        return False
    depot.delete_folder(checkpoint.key)
    catalog.forget_checkpoint(checkpoint)
    log.info("expired: %s", checkpoint.path, extra={"action": "expire", "run": checkpoint.path.run})
    return True


def prune(catalog: Catalog, ledger: Ledger, depot: Depot, rules: Retention) -> None:
    """Remove what runs have of unnamed sampler weights beyond the newest, unless it is needed or was of late."""
    made_before = datetime.now(UTC) - timedelta(seconds=rules.unused_seconds)
    surplus = catalog.surplus_policies(newest=rules.unnamed_per_run, made_before=made_before)
    removals = (key for key in surplus if _remove(catalog, ledger, depot, key, rules.unused_seconds))
    removed = len(list(islice(removals, AT_MOST)))
    if removed:
        log.info("sampler weights removed: %d", removed, extra={"action": "prune"})


def _remove(catalog: Catalog, ledger: Ledger, depot: Depot, policy: DepotKey, unused_seconds: float) -> bool:
    """Unnamed sampler weights; False where an op needs them or did within so many seconds."""
    if not ledger.retire(policy, unused_seconds):
        return False
    depot.delete_folder(policy)
    catalog.policy_removed(policy)
    return True


def release(catalog: Catalog, ledger: Ledger, depot: Depot, rules: Retention) -> None:
    """Let go of sessions that are over: the snapshots of their runs and their unnamed sampler weights."""
    now = datetime.now(UTC)
    over = catalog.sessions_over(
        finished_before=now - timedelta(seconds=rules.finished_seconds),
        silent_before=now - timedelta(seconds=rules.silent_seconds),
        limit=AT_MOST,
    )
    for session in over:
        try:
            done = _release(catalog, ledger, depot, session)
        except TurnUnsettled:
            done = False
        if not done:  # its last ops are still under way
            continue
        catalog.released(session.id)
        log.info("session released", extra={"action": "release", "session": session.id})


def _release(catalog: Catalog, ledger: Ledger, depot: Depot, session: Session) -> bool:
    """False where samples of its weights are under way. Weights that were removed before are deleted again: a worker
    that was thought dead may have written them once more since."""
    for run in catalog.session_runs(session.tenant, session.id):
        snapshot = ledger.forget(run)
        if snapshot is not None:
            depot.delete_folder(snapshot)
    unnamed = [key for key in catalog.session_policies(session.tenant, session.id) if key.startswith(UNNAMED)]
    removed = [_remove(catalog, ledger, depot, key, 0.0) for key in unnamed]
    return all(removed)
