"""Whether a worker's consumer still hears bells. A process may live, and its consumer be stuck, cut off, or without a
queue; then only a restart helps.

Celery's loop asks the broker for bells again and again (BRPOP), and an answer, empty or not, comes within about a
second. Once a second the loop looks whether one came; while the worker is full it asks for none, and is well too.
"""

import time
from collections.abc import Callable, Sequence
from queue import Empty
from typing import Any, Final

from celery import Celery, bootsteps

LOOK_SECONDS: Final = 1.0


class Hearing:
    """Written by the consumer's thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_at: float | None = None
        self._answered = False

    @property
    def began(self) -> bool:
        return self._heard_at is not None

    def silent_seconds(self) -> float:
        """For how long no bell could have been heard; 0 before the first could."""
        return 0.0 if self._heard_at is None else self._clock() - self._heard_at

    def answered(self) -> None:
        """The broker told whether there are bells."""
        self._answered = True

    def look(self, *, full: bool, listens: bool) -> None:
        """The loop came round: `full`, so that it asks for no bells; `listens` to all queues that it should."""
        if listens and (self._answered or full):
            self._heard_at = self._clock()
        self._answered = False


def watch(app: Celery, hearing: Hearing, queues: Sequence[str]) -> None:
    """Have the consumer of a worker of the application tell whether it hears bells of these queues."""

    class Watch(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        """Started again whenever the consumer connects again."""

        requires = ("celery.worker.consumer:Tasks",)

        def __init__(self, parent: Any, **options: Any) -> None:
            super().__init__(parent, **options)
            self._looking: Any = None

        def start(self, parent: Any) -> None:
            consumer = parent.task_consumer
            _tell_answers(consumer.channel, hearing)

            def look() -> None:
                full = not consumer.channel.qos.can_consume()
                hearing.look(full=full, listens=all(consumer.consuming_from(queue) for queue in queues))

            self._looking = parent.timer.call_repeatedly(LOOK_SECONDS, look)

        def stop(self, parent: Any) -> None:
            if self._looking is not None:
                self._looking.cancel()
                self._looking = None

    app.steps["consumer"].add(Watch)


def _tell_answers(channel: Any, hearing: Hearing) -> None:
    read = channel.handlers["BRPOP"]

    def read_and_tell() -> Any:
        try:
            answer = read()
        except Empty:
            hearing.answered()
            raise
        hearing.answered()
        return answer

    channel.handlers["BRPOP"] = read_and_tell
