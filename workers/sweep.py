"""Rings again for whatever went quiet. Every worker sweeps; the ledger makes sure that they do no harm."""

import logging

from openrl.ledger.port import Ledger, Swept

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0


def sweep(ledger: Ledger) -> None:
    swept = ledger.sweep()
    if swept != Swept():
        log.info("swept: %s", swept, extra={"action": "sweep"})
