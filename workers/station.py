"""What a worker process stands on: ledger, depot, the keeper of its claims, and the work it can do.

Built once per process, in named and timed steps; Celery's doors find it through `station()`.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

import redis

from openrl.config import Settings
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.ids import WorkerId
from openrl.domain.stretch import Period
from openrl.domain.worker import DeviceUse
from openrl.ledger.connect import connect
from openrl.ledger.port import Ledger, Limits, Ring
from openrl.ledger.redis import RedisLedger
from workers.keeper import Keeper
from workers.metrics import START
from workers.ticker import Ticker
from workers.work import Work

log = logging.getLogger(__name__)

#: Rides out a broker's restart of some seconds.
RETRIES: Final = 12
PAUSE_SECONDS: Final = 1.0


@dataclass(slots=True)
class Station:
    worker: WorkerId
    redis: redis.Redis
    ledger: Ledger
    depot: FsspecDepot
    keeper: Keeper
    works: dict[str, Work] = field(default_factory=dict)
    rewards: tuple[str, ...] = ()  #: names of the reward functions there are here
    use: Callable[[], DeviceUse] | None = None  #: tells how busy the device is, where there is one
    tell_timeline: Callable[[Callable[[Period], object]], None] | None = (
        None  #: what the device did since the last time
    )
    at_drain: list[Callable[[], object]] = field(default_factory=list)  #: called when it drains; they return at once
    drain_seconds: float = 0.0  #: that samples and scores under way get when it drains
    drains_since: float | None = None  #: on the monotonic clock; None: it does not
    broken: int = 0  #: exit status of a process that can do no more work; 0: it can

    @property
    def train_work(self) -> Work:
        return self.works["train"]

    @property
    def sample_work(self) -> Work:
        return self.works["sample"]

    @property
    def reward_work(self) -> Work:
        return self.works["reward"]

    def draining_seconds(self) -> float:
        """Since it was told to stop; 0 before."""
        return 0.0 if self.drains_since is None else time.monotonic() - self.drains_since

    def drain(self) -> None:
        """Begin nothing more. Training ends what is on the device and gives its runs up; samples and scores have
        `drain_seconds`, and what is unfinished then is handed back. Returns at once."""
        if self.drains_since is not None:
            return
        self.drains_since = time.monotonic()
        log.info("draining", extra={"action": "drain"})
        self.keeper.close()
        for kind, work in self.works.items():
            if kind == "train":
                work.drain()
            else:
                _later(self.drain_seconds, work.drain)
        for call in self.at_drain:
            call()


_current: Station | None = None


def station() -> Station:
    """This process's station."""
    assert _current is not None, "no station was opened in this process"
    return _current


@contextmanager
def opened(settings: Settings, ring: Ring) -> Iterator[Station]:
    """Open a station with an empty set of works; it renews claims until it is closed."""
    global _current
    assert settings.redis_url is not None
    worker = _new_id()
    with ExitStack() as closing:
        with step("ledger and depot"):
            client = connect(settings.redis_url, retries=RETRIES, longest_pause_seconds=PAUSE_SECONDS)
            closing.callback(client.close)
            depot = FsspecDepot(settings.depot_at)
            depot.check()
            limits = Limits(**settings.ledger.model_dump())
            ledger = RedisLedger(client, depot, ring, holder=worker, limits=limits)
        keeper = Keeper(ledger)
        ticker = Ticker("renew claims", settings.ledger.hold_seconds / 4, keeper.renew).start()
        closing.callback(ticker.stop)
        _current = Station(
            worker=worker,
            redis=client,
            ledger=ledger,
            depot=depot,
            keeper=keeper,
            drain_seconds=settings.worker.drain_seconds,
        )
        yield _current
        if _current.drains_since is not None:
            log.info("drained in %.2f s", time.monotonic() - _current.drains_since, extra={"action": "drain"})


def _later(seconds: float, call: Callable[[], object]) -> None:
    """The process does not wait for it."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def _new_id() -> WorkerId:
    """Never one of an earlier process: what that one held is not held by this one."""
    name = os.environ.get("OPENRL_WORKER_ID") or f"{socket.gethostname()}-{os.getpid()}"
    return WorkerId(f"{name}-{secrets.token_hex(3)}")


@contextmanager
def step(name: str, of: str = "") -> Iterator[None]:
    """Name and time one step of a start."""
    started = time.monotonic()
    whole = f"{name} {of}".strip()
    log.info("%s …", whole, extra={"action": "start"})
    yield
    seconds = time.monotonic() - started
    START.labels(name).set(seconds)
    log.info("%s: %.1f s", whole, seconds, extra={"action": "start"})
