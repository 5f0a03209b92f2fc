"""A worker that goes away gives its runs up one by one: each as soon as no op of it is at work and a snapshot has it,
so that another worker goes on with it while this one still ends what it does for others."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from openrl.domain.ids import RunId
from workers.train.residents import Residents
from workers.train.snapshots import WRITERS, Snapshots

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.05  #: for ops that have ended to be written down


class HandOver:
    def __init__(self, residents: Residents, snapshots: Snapshots) -> None:
        self._residents, self._snapshots = residents, snapshots
        self._thread = threading.Thread(target=self._run, name="hand over", daemon=True)
        self._enough = threading.Event()

    def begin(self) -> None:
        """Returns at once."""
        self._thread.start()

    def finish(self) -> None:
        """Wait for what is on its way; nothing where it never began."""
        self._enough.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        began, runs = time.monotonic(), len(self._residents.runs)
        with ThreadPoolExecutor(WRITERS, "hand over") as writers:
            while self._residents.runs:
                list(writers.map(self._try, list(self._residents.runs)))
                if self._enough.wait(PAUSE_SECONDS):
                    break
        seconds = time.monotonic() - began
        log.info("%d runs given up in %.2f s", runs, seconds, extra={"action": "hand_over"})

    def _try(self, run: RunId) -> None:
        try:
            self._snapshots.hand_over(run)
        except Exception:
            log.exception("not handed over; to be tried again", extra={"action": "hand_over", "run": run})
            self._enough.wait(1.0)
