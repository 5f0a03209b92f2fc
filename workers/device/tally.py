"""How busy the device is, by side. Written by the device's threads, read by any."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from openrl.domain.worker import DeviceUse, SideUse
from workers.device.arbiter import Side


@dataclass(slots=True)
class Timed:
    """One spell on the device."""

    seconds: float = 0.0  #: known when it has ended


class Tally:
    """One spell of each side at a time; spells of both may overlap."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._born = clock()
        self._uses = {side: SideUse() for side in Side}
        self._running: dict[Side, float] = {}  #: who is on the device, and since when
        self._busy_seconds, self._busy_since = 0.0, 0.0  #: the latter means something while a side is running

    @contextmanager
    def timing(self, side: Side) -> Iterator[Timed]:
        """The device is the side's for as long as this lasts."""
        timed = Timed()
        with self._lock:
            started = self._running[side] = self._clock()
            if len(self._running) == 1:
                self._busy_since = started
        try:
            yield timed
        finally:
            with self._lock:
                now = self._clock()
                timed.seconds = now - self._running.pop(side)
                use = self._uses[side]
                self._uses[side] = replace(use, seconds=use.seconds + timed.seconds)
                if not self._running:
                    self._busy_seconds += now - self._busy_since

    def count(self, side: Side, tokens: int) -> None:
        """One more pass, of so many tokens."""
        with self._lock:
            use = self._uses[side]
            self._uses[side] = replace(use, passes=use.passes + 1, tokens=use.tokens + tokens)

    def read(self) -> DeviceUse:
        """So far, with what runs at the moment."""
        with self._lock:
            now = self._clock()
            sides = {
                side: replace(use, seconds=use.seconds + now - self._running.get(side, now))
                for side, use in self._uses.items()
            }
            busy = self._busy_seconds + (now - self._busy_since if self._running else 0.0)
            return DeviceUse(
                seconds=now - self._born, busy_seconds=busy, train=sides[Side.TRAIN], sample=sides[Side.SAMPLE]
            )
