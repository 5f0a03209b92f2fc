"""How busy the device is, by side. Written by the device's thread, read by any."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from openrl.domain.worker import DeviceUse, SideUse
from workers.device.arbiter import Side


class Tally:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._born = clock()
        self._uses = {side: SideUse() for side in Side}
        self._running: tuple[Side, float] | None = None  #: who is on the device, and since when
        self.last_seconds = 0.0  #: how long the last turn on the device took

    @contextmanager
    def timing(self, side: Side) -> Iterator[None]:
        """The device is the side's for as long as this lasts."""
        started = self._clock()
        with self._lock:
            self._running = side, started
        try:
            yield
        finally:
            with self._lock:
                self.last_seconds = self._clock() - started
                use = self._uses[side]
                self._uses[side] = replace(use, seconds=use.seconds + self.last_seconds)
                self._running = None

    def count(self, side: Side, tokens: int) -> None:
        """One more pass, of so many tokens."""
        with self._lock:
            use = self._uses[side]
            self._uses[side] = replace(use, passes=use.passes + 1, tokens=use.tokens + tokens)

    def read(self) -> DeviceUse:
        with self._lock:
            train, sample = self._with_running(Side.TRAIN), self._with_running(Side.SAMPLE)
            return DeviceUse(seconds=self._clock() - self._born, train=train, sample=sample)

    def _with_running(self, side: Side) -> SideUse:
        """The side's use, what runs at the moment included."""
        use = self._uses[side]
        if self._running is None or self._running[0] is not side:
            return use
        return replace(use, seconds=use.seconds + self._clock() - self._running[1])
