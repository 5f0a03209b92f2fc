"""Whether a worker is alive, and whether it is ready: what its operators' probes ask."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import redis
from celery import Celery
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from openrl.config import Metrics, Settings
from openrl.telemetry.endpoint import Told, telling
from queues.hearing import Hearing, watch
from workers import metrics
from workers.station import Station

#: A consumer that loses its broker finds that out within some twenty seconds and connects again; after this it never
#: will.
SILENT_SECONDS: Final = 30.0
PING_SECONDS: Final = 0.5


class Health:
    def __init__(self, app: Celery | None, here: Station, hearing: Hearing, redis_url: str) -> None:
        self._app, self._here, self._hearing = app, here, hearing
        self._broker = redis.Redis.from_url(
            redis_url, socket_timeout=PING_SECONDS, socket_connect_timeout=PING_SECONDS, retry=None
        )
        self.announced = False  #: the roster was told
        metrics.SILENT.set_function(lambda: hearing.silent_seconds() if self.sick() else 0.0)
        metrics.READY.set_function(lambda: float(not self.unready()))
        metrics.DRAINING.set_function(here.draining_seconds)

    def listens_to(self, queues: Sequence[str]) -> None:
        """Of which queues the consumer is to hear bells."""
        assert self._app is not None
        watch(self._app, self._hearing, queues)

    def close(self) -> None:
        self._broker.close()

    def sick(self) -> str:
        """Why only a restart helps. A broker that answers nobody is no reason: a new process would not reach it either,
        and runs would have left memory for nothing."""
        silent = self._hearing.silent_seconds()
        if silent < SILENT_SECONDS or self._here.drains_since is not None or not self._broker_answers():
            return ""
        return f"its consumer has heard nothing for {silent:.0f} s, and the broker answers others"

    def unready(self) -> str:
        if self._here.drains_since is not None:
            return f"draining for {self._here.draining_seconds():.0f} s"
        if not self._hearing.began:
            return "starting: the model is being loaded, or the broker looked for"
        if not self.announced:
            return "the other processes do not know of it yet"
        silent = self._hearing.silent_seconds()
        return "" if silent < SILENT_SECONDS else f"it has heard nothing of the broker for {silent:.0f} s"

    def _broker_answers(self) -> bool:
        try:
            return bool(self._broker.ping())
        except (redis.RedisError, OSError):
            return False


@contextmanager
def told(app: Celery, here: Station, settings: Settings) -> Iterator[Health]:
    """Tell operators of this worker until the block ends, from its start on."""
    assert settings.redis_url is not None
    health = Health(app, here, Hearing(), settings.redis_url)
    with telling(settings.metrics, Told(registry=metrics.REGISTRY, sick=health.sick, unready=health.unready)):
        try:
            yield health
        finally:
            health.close()


@contextmanager
def follower_told(settings: Metrics, local_rank: int) -> Iterator[Callable[[], None]]:
    """Tell operators of a rank other than 0 until the block ends, on the port as far behind rank 0's as the machine
    counts it; what the block gets is called once its part of the model is loaded. Work and liveness are rank 0's, which
    ends with it."""
    registry, starting = CollectorRegistry(), ["starting: its part of the model is being loaded"]
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    own = settings.model_copy(update={"port": settings.port and settings.port + local_rank})
    with telling(own, Told(registry=registry, sick=lambda: "", unready=lambda: "".join(starting))):
        yield starting.clear
