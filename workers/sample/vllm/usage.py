"""How busy vLLM is, as far as its worker sees: it is told tokens, and not which steps drew them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openrl.domain.worker import DeviceUse, SideUse


class Usage:
    """Safe between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._born = clock()
        self.rows = 0  #: samples that vLLM has at the moment
        self._tokens = 0
        self._busy_seconds, self._busy_since = 0.0, 0.0  #: the latter means something while there are rows

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """vLLM has one sample more until the block ends."""
        with self._lock:
            if not self.rows:
                self._busy_since = self._clock()
            self.rows += 1
        try:
            yield
        finally:
            with self._lock:
                self.rows -= 1
                if not self.rows:
                    self._busy_seconds += self._clock() - self._busy_since

    def drew(self, tokens: int) -> None:
        with self._lock:
            self._tokens += tokens

    def read(self) -> DeviceUse:
        """So far. vLLM counts as busy while it has a sample; passes are not known, and none are told."""
        with self._lock:
            now = self._clock()
            busy = self._busy_seconds + (now - self._busy_since if self.rows else 0.0)
            sample = SideUse(seconds=busy, tokens=self._tokens)
            return DeviceUse(seconds=now - self._born, busy_seconds=busy, sample=sample)
