"""Frees what users said they would not need any longer. Every train worker does it; twice does no harm."""

import logging

from openrl.catalog.repository import Catalog
from openrl.depot.port import Depot

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
AT_MOST = 100  #: checkpoints in one call


def expire(catalog: Catalog, depot: Depot) -> None:
    """Delete checkpoints past their time: bytes first, so that a row is left for whatever a crash leaves."""
    for checkpoint in catalog.expired_checkpoints(AT_MOST):
        depot.delete_folder(checkpoint.key)
        catalog.forget_checkpoint(checkpoint)
        log.info("expired: %s", checkpoint.path, extra={"action": "expire", "run": checkpoint.path.run})
