"""A thread that calls a function again and again. Errors are logged and the next call comes all the same."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Ticker:
    def __init__(self, name: str, every_seconds: float, call: Callable[[], object]) -> None:
        self._every_seconds, self._call = every_seconds, call
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> "Ticker":
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            try:
                self._call()
            except Exception:
                log.exception("%s failed and will be tried again", self._thread.name, extra={"action": "tick"})
