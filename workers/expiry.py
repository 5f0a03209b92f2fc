"""Frees what nobody will need any longer: checkpoints past their time, and what only a session that is over needed.

Every train worker does it; twice does no harm. Bytes go first and their row last, so that a row is left for whatever a
crash leaves.
"""

import logging
from datetime import UTC, datetime, timedelta

from openrl.catalog.repository import Catalog
from openrl.config import Retention
from openrl.depot.port import Depot
from openrl.domain.errors import TurnUnsettled
from openrl.domain.session import Session
from openrl.ledger.port import Ledger

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
AT_MOST = 100  #: checkpoints or sessions in one call
UNNAMED = "policies/"  #: where weights of samplers lie that were saved without a name


def expire(catalog: Catalog, depot: Depot) -> None:
    """Delete checkpoints past their time."""
    for checkpoint in catalog.expired_checkpoints(AT_MOST):
        depot.delete_folder(checkpoint.key)
        catalog.forget_checkpoint(checkpoint)
        log.info("expired: %s", checkpoint.path, extra={"action": "expire", "run": checkpoint.path.run})


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
            _release(catalog, ledger, depot, session)
        except TurnUnsettled:  # its last ops are still under way
            continue
        catalog.released(session.id)
        log.info("session released", extra={"action": "release", "session": session.id})


def _release(catalog: Catalog, ledger: Ledger, depot: Depot, session: Session) -> None:
    for run in catalog.session_runs(session.tenant, session.id):
        snapshot = ledger.forget(run)
        if snapshot is not None:
            depot.delete_folder(snapshot)
    for key in catalog.session_policies(session.tenant, session.id):
        if key.startswith(UNNAMED):
            depot.delete_folder(key)
