"""A bell for graders that take too long. Knows nothing of rewards; works in a process's main thread only, which is where
Celery's prefork children carry out their tasks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeIsUp(Exception):
    """The block took longer than it was given."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp inside the block when the seconds are over. Python's own loops and `re` let themselves be
    interrupted; a C extension that never looks for signals does not. Not to be nested."""
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _ring(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp
