"""Starts a worker process of a role: opens its station, registers its doors, and lets Celery run."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from celery import Celery, signals

from openrl import importing
from openrl.config import Settings
from openrl.domain.errors import LedgerUnreachable
from openrl.domain.model import ModelCard
from openrl.domain.op import queue_of
from openrl.domain.worker import Role, WorkerInfo
from openrl.ledger.port import Brings
from openrl.ledger.roster import RedisRoster
from openrl.ledger.timelines import RedisTimelines
from openrl.models.catalogue import resolve
from queues.app import make_app
from queues.bell import ringer
from queues.lanes import REWARD_LINE, reward_queues, sample_line, sample_queues, train_queue
from workers.health import Health, follower_told, told
from workers.namesakes import bury_namesakes
from workers.station import Station, opened
from workers.stopping import stoppable
from workers.sweep import EVERY_SECONDS as SWEEP_SECONDS
from workers.sweep import sweep
from workers.ticker import Ticker
from workers.train.group.place import Place, check_group, place_in

if TYPE_CHECKING:
    from workers.train.group.member import Member

log = logging.getLogger(__name__)

ANNOUNCE_SECONDS = 2.0
ANNOUNCED_FOR_SECONDS = 8.0
#: One tenant alone may have half of a line's slots (openrl.ledger.lines): with so many it keeps a worker as busy.
SLOTS_FOR_EACH_AT_WORK = 2


class Equip(Protocol):
    """Puts engines on a station, and answers the card of the base model that they serve. Raises OperatorError."""

    def __call__(
        self,
        here: Station,
        settings: Settings,
        closing: ExitStack,
        *,
        trains: bool,
        samples: bool,
        member: "Member | None",
    ) -> ModelCard: ...


def run(role: str, settings: Settings, equip: Equip | None = None) -> None:
    """Run a worker, or this process's part of one, until it is told to stop; with engines of its own where `equip`
    puts others there.

    Raises OperatorError for what an operator must mend first.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads of two processes starve each other
    assert settings.redis_url is not None
    place = place_in(os.environ)
    if place is not None:
        check_group(role, settings.train, "torchrun")
    if place is not None and not place.leads:
        _run_follower(place, settings)
        return
    app = make_app(settings.redis_url)
    with stoppable():
        if Role(role) is Role.REWARD:
            _run_reward(app, settings)
        else:
            _run_device(app, Role(role), settings, place, equip or _chosen(Role(role), settings))


def _run_follower(place: Place, settings: Settings) -> None:
    """A rank other than 0. Signals to stop are for rank 0, which stops the others when it has drained."""
    with importing.many():
        from workers.device.station import load
        from workers.device.training import memory_bytes, pack_tokens

    member = _join(place, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with follower_told(settings.metrics, place.local_rank) as loaded:
        base = load(str(resolve(settings.base_model, settings.home)), settings, member)
        loaded()
        member.follow(base, pack_tokens=pack_tokens(settings, member), memory_bytes=memory_bytes(settings))


def _join(place: Place, settings: Settings) -> "Member":
    from workers.train.group.member import join

    member = join(place, device=settings.worker.device, wait_seconds=settings.train.group_seconds)
    member.must_agree(f"{settings.base_model}, {settings.train}")
    return member


def _run_device(app: Celery, role: Role, settings: Settings, place: Place | None, equip: Equip) -> None:
    from workers.sample import tasks as sample_tasks
    from workers.train import tasks as train_tasks

    member = None if place is None else _join(place, settings)
    with opened(settings, ringer(app)) as here, ExitStack() as closing, told(app, here, settings) as health:
        trains, samples = role is not Role.SAMPLE, role is not Role.TRAIN
        card = equip(here, settings, closing, trains=trains, samples=samples, member=member)
        queues = []
        if trains:
            train_tasks.register(app)
            queues += [train_queue(card.name), queue_of(here.worker)]
        if samples:
            sample_tasks.register(app)
            queues += sample_queues(card.name, settings.sample.lanes)
        threads = settings.worker.appetite * (SLOTS_FOR_EACH_AT_WORK if samples else 1)
        offer = (
            train_queue(card.name) if trains else "",
            Brings(line=sample_line(card.name), slots=threads) if samples else None,
        )
        signals.worker_ready.connect(lambda **_: here.keeper.offer(*offer), weak=False)
        health.listens_to(queues)
        _announce_and_sweep(here, role, (card,), threads, closing, health)
        _consume(app, here, role, queues, concurrency=threads, events=settings.worker.events)


def _chosen(role: Role, settings: Settings) -> Equip:
    """Each engine's modules are imported where it runs only."""
    with importing.many():
        from workers.model.devices import choose_device
        from workers.sample.choice import choose_engine

        engine, why = choose_engine(settings.sample.engine, role, choose_device(settings.worker.device).type)
        if role is not Role.TRAIN:
            log.info("sample engine: %s (%s)", engine, why, extra={"action": "start"})
        if engine == "vllm":
            from workers.sample.vllm.station import equip as equip_vllm

            return lambda here, settings, closing, **_: equip_vllm(here, settings, closing)
        from workers.device.station import equip

        return equip


def _run_reward(app: Celery, settings: Settings) -> None:
    """Threads that each talk to a child in the sandbox, where scoring happens."""
    from workers.reward import tasks as reward_tasks
    from workers.reward.station import equip

    reward_tasks.register(app)
    processes = settings.worker.reward_processes
    brings = Brings(line=REWARD_LINE, slots=SLOTS_FOR_EACH_AT_WORK * processes)
    with opened(settings, ringer(app)) as here, ExitStack() as closing, told(app, here, settings) as health:
        equip(here, settings, closing)
        signals.worker_ready.connect(lambda **_: here.keeper.offer(brings=brings), weak=False)
        queues = reward_queues(settings.sample.lanes)
        health.listens_to(queues)
        _announce_and_sweep(here, Role.REWARD, (), processes, closing, health)
        _consume(app, here, Role.REWARD, queues, concurrency=processes, events=settings.worker.events)


def _announce_and_sweep(
    here: Station, role: Role, cards: tuple[ModelCard, ...], slots: int, closing: ExitStack, health: Health
) -> None:
    roster, timelines = RedisRoster(here.redis), RedisTimelines(here.redis)
    info = WorkerInfo(
        id=here.worker,
        role=role,
        host=socket.gethostname(),
        pid=os.getpid(),
        cards=cards,
        slots=slots,
        started_at=datetime.now(UTC),
    )

    def announce() -> None:
        use, draining = here.use() if here.use else None, here.drains_since is not None
        roster.announce(replace(info, rewards=here.rewards, use=use, draining=draining), ANNOUNCED_FOR_SECONDS)
        health.announced = True
        if here.tell_timeline is not None:
            here.tell_timeline(lambda period: timelines.add(here.worker, period))

    def drain(**_: object) -> None:
        here.drain()
        # Signal handlers call this: they may have interrupted whoever uses the connection.
        threading.Thread(target=announce, name="announce", daemon=True).start()

    def start_tickers(**_: object) -> None:
        """The consumer has reached the broker. Where that is away again, the tickers tell of the worker later."""
        try:
            bury_namesakes(here.redis, here.worker)
            announce()
        except LedgerUnreachable as error:
            log.warning("not announced yet: %s", error, extra={"action": "start"})
        tickers = (
            _ticking(closing, "announce", ANNOUNCE_SECONDS, announce),
            _ticking(closing, "sweep", SWEEP_SECONDS, lambda: sweep(here.ledger)),
        )
        log.info("ready", extra={"action": "start", "tickers": len(tickers)})

    signals.worker_ready.connect(start_tickers, weak=False)
    signals.worker_shutting_down.connect(drain, weak=False)
    closing.callback(roster.leave, info.id)


def _ticking(closing: ExitStack, name: str, every_seconds: float, call: Callable[[], object]) -> Ticker:
    ticker = Ticker(name, every_seconds, call).start()
    closing.callback(ticker.stop)
    return ticker


def _consume(app: Celery, here: Station, role: Role, queues: list[str], *, concurrency: int, events: bool) -> None:
    worker = app.Worker(
        hostname=f"{role}@{here.worker}",
        pool="threads",
        concurrency=concurrency,
        queues=queues,
        loglevel="INFO",
        task_events=events,
        without_mingle=True,
        without_gossip=True,
        redirect_stdouts=False,
    )
    worker.start()
    if worker.exitcode or here.broken:
        raise SystemExit(worker.exitcode or here.broken)
