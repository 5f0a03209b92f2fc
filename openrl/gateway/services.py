"""What every request may need, opened once per process: catalog, depot, ledger, notices, roster, and what is remembered
of them. Blocking calls run on the pool of `off_loop`, never on the event loop."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, TypeVar

from openrl.catalog.repository import Catalog
from openrl.config import Settings
from openrl.depot.filesystem import FsspecDepot
from openrl.depot.port import Depot
from openrl.domain.errors import ModelUnknown, NoWorker, OpenRLError, SettingInvalid
from openrl.domain.ids import RunId, SamplerId, TenantId
from openrl.domain.model import ModelCard
from openrl.domain.op import Bell, Op
from openrl.domain.outcome import Record
from openrl.domain.policy import Sampler
from openrl.domain.run import Run
from openrl.domain.worker import WorkerInfo
from openrl.gateway.awaited import awaited_card, missing_worker
from openrl.gateway.depth import Depth, depths
from openrl.gateway.line import in_line
from openrl.gateway.memo import Memo
from openrl.ledger.census import QueueLoad
from openrl.ledger.connect import connect
from openrl.ledger.notices import RedisNotices
from openrl.ledger.port import POLICY_SECONDS, Ledger, Limits, Notices
from openrl.ledger.redis import RedisLedger
from openrl.ledger.roster import RedisRoster, Roster
from openrl.ledger.timelines import RedisTimelines, Timelines
from openrl.telemetry import traces
from queues.app import make_app
from queues.bell import ringer
from queues.lanes import bell_of

#: Requests that may block at the same time, on the database, the broker or the depot.
THREADS: Final = 64
KEY_SECONDS: Final = 30.0  #: a revoked key may still be accepted for so long
ROSTER_SECONDS: Final = 1.5  #: a model may be served for so long before it is known here
QUEUES_SECONDS: Final = 2.0  #: counting what stands in the queues takes the ledger a while, so not too often
TOUCH_SECONDS: Final = 30.0  #: a run's time of last request is written at most so often
#: Of runs and samplers only what never changes is used, or what is checked again before it counts: the ledger knows for
#: longer than this that a sampler's weights were removed.
FIXED_SECONDS: Final = POLICY_SECONDS / 24
#: Rides out a blink of the broker; a longer outage is told to the client, which comes again.
RETRIES: Final = 5
PAUSE_SECONDS: Final = 0.5

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    settings: Settings
    catalog: Catalog
    depot: Depot
    ledger: Ledger
    notices: Notices
    roster: Roster
    timelines: Timelines
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, thread_name_prefix="request"))
    client_config: Mapping[str, Any] = field(default_factory=dict)  #: added to what SDK clients are told to do
    keys: Memo[str, TenantId] = field(default_factory=lambda: Memo(KEY_SECONDS))
    _workers: Memo[str, list[WorkerInfo]] = field(default_factory=lambda: Memo(ROSTER_SECONDS))
    _cards: Memo[str, list[ModelCard]] = field(default_factory=lambda: Memo(ROSTER_SECONDS))
    _queues: Memo[str, list[QueueLoad]] = field(default_factory=lambda: Memo(QUEUES_SECONDS))
    _runs: Memo[tuple[TenantId, RunId], Run] = field(default_factory=lambda: Memo(FIXED_SECONDS))
    _samplers: Memo[tuple[TenantId, SamplerId], Sampler] = field(default_factory=lambda: Memo(FIXED_SECONDS))
    _touched: Memo[RunId, bool] = field(default_factory=lambda: Memo(TOUCH_SECONDS))

    async def off_loop(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work on a thread; one hop per request."""
        return await asyncio.get_running_loop().run_in_executor(
            self.pool, copy_context().run, lambda: work(*args, **kwargs)
        )

    @property
    def body_bytes(self) -> int:
        return self.settings.gateway.max_body_mb * 1_000_000

    # ---------------------------------------------------------------------------------------- blocking
    def tenant(self, secret: str) -> TenantId:
        """Raises KeyRejected."""
        return self.keys.keep(secret, self.catalog.tenant_of_key(secret))

    def cards(self) -> list[ModelCard]:
        return self._cards.get("all", self.roster.cards)

    def workers(self) -> list[WorkerInfo]:
        return self._workers.get("all", self.roster.workers)

    def queues(self) -> list[QueueLoad]:
        return self._queues.get("all", self.ledger.queues)

    @property
    def models(self) -> set[str]:
        """Canonical names of those that are served or waited for."""
        return {*(card.name for card in self.cards()), *self.settings.gateway.awaited_models}

    def depths(self) -> list[Depth]:
        return depths(self.queues(), self.workers(), self.models)

    def bell(self, op: Op, model: str) -> Bell:
        """The bell of an op that the present request brings in; `model` is as in `bell_of`."""
        return bell_of(op, model=model, lanes=self.settings.sample.lanes, trace=traces.traceparent())

    def why_unready(self) -> str:
        """What keeps requests from being answered; empty for nothing."""
        try:
            self.roster.workers()
            self.catalog.ping()
        except OpenRLError as error:
            return str(error)
        return ""

    def rewards(self) -> tuple[str, ...]:
        """Names of the reward functions that there are workers for, sorted; none while no such worker is up."""
        return tuple(sorted({name for worker in self.workers() for name in worker.rewards}))

    def card(self, model: str) -> ModelCard:
        """The card of a model that something of ours is made of. Raises NoWorker until it is served again, unless it is
        one that is waited for."""
        card = self._card(model)
        if card is None:
            raise NoWorker(model)
        return card

    def requested_card(self, model: str) -> ModelCard:
        """The card of a model that a client asks for. Raises ModelUnknown, or NoWorker while nothing is served yet."""
        card = self._card(model)
        if card is not None:
            return card
        served = tuple(card.name for card in self.cards())
        if not served:
            raise NoWorker(model)
        raise ModelUnknown(model, served)

    def _card(self, model: str) -> ModelCard | None:
        told = next((card for card in self.cards() if card.answers_to(model)), None)
        return told or awaited_card(model, self.settings)

    def why_waiting(self, record: Record) -> str | None:
        """A sentence for an op that waits in a queue that nobody takes from, or in line; None for one that does not."""
        missing = missing_worker(record.queue, self.workers(), self.models, self.settings.sample.lanes)
        return missing or in_line(self.ledger.place(record.id))

    def run(self, tenant: TenantId, run: RunId) -> Run:
        """What never changes of a run; its times are as old as the memory. Raises RunNotFound."""
        return self._runs.get((tenant, run), lambda: self.catalog.run(tenant, run))

    def touch(self, run: RunId) -> None:
        """A request for the run came in."""
        if self._touched.known(run) is None:
            self.catalog.touch_run(run)
            self.touched(run)

    def touched(self, run: RunId) -> None:
        """The run's time is of now already."""
        self._touched.keep(run, True)

    def sampler(self, tenant: TenantId, sampler: SamplerId) -> Sampler:
        """Raises SamplerNotFound."""
        return self._samplers.get((tenant, sampler), lambda: self.catalog.sampler(tenant, sampler))


@contextmanager
def open_services(settings: Settings) -> Iterator[Services]:
    """The real ones. Raises OperatorError for what an operator must mend first."""
    if settings.redis_url is None:
        raise SettingInvalid("OPENRL_REDIS_URL", "is not set; a gateway of its own needs the broker's address")
    with ExitStack() as closing:
        catalog = Catalog(settings.catalog_at)
        closing.callback(catalog.close)
        catalog.migrate()
        depot = FsspecDepot(settings.depot_at)
        depot.check()
        client = connect(settings.redis_url, retries=RETRIES, longest_pause_seconds=PAUSE_SECONDS)
        closing.callback(client.close)
        app = make_app(settings.redis_url)
        closing.callback(app.close)
        holder = f"gateway-{socket.gethostname()}-{os.getpid()}"
        limits = Limits(**settings.ledger.model_dump())
        notices = RedisNotices(client)
        closing.callback(notices.close)
        services = Services(
            settings=settings,
            catalog=catalog,
            depot=depot,
            ledger=RedisLedger(client, depot, ringer(app), holder=holder, limits=limits),
            notices=notices,
            roster=RedisRoster(client),
            timelines=RedisTimelines(client),
        )
        closing.callback(services.pool.shutdown)
        yield services
