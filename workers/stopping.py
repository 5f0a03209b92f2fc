"""Being told to stop before there is anything to drain: while a model is loaded, Celery does not listen to signals yet,
and the first process of a container ignores those that nobody handles."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends the block in order, until Celery takes it over."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
