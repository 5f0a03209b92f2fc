"""How somebody asks a process to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """Somebody asked to stop while something was still starting."""


class StopSignals:
    """SIGINT, SIGTERM and SIGHUP, counted: the first asks to stop, the second to hurry."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    @property
    def came(self) -> bool:
        return self.count > 0

    def hurry(self) -> bool:
        return self.count > 1

    @contextmanager
    def caught(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
