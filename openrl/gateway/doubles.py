"""A whole gateway on doubles, for tests and benches: memory for the ledger, a toy for the worker, real HTTP."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from openrl.catalog.repository import Catalog
from openrl.config import Gateway, Metrics, Settings
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.ids import WorkerId
from openrl.domain.op import Op
from openrl.domain.worker import Role, WorkerInfo
from openrl.gateway.app import create_app
from openrl.gateway.services import Services
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.notices import MemoryNotices
from openrl.ledger.port import Limits
from openrl.ledger.roster import MemoryRoster
from openrl.ledger.timelines import MemoryTimelines
from openrl.testing import TOY_CARD, ToyWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyGateway:
    url: str
    key: str
    other_key: str  #: of another tenant
    worker: ToyWorker
    services: Services
    app: FastAPI


@contextmanager
def toy_gateway(
    folder: Path,
    *,
    gateway: Gateway | None = None,
    metrics: Metrics | None = None,
    limits: Limits | None = None,
    client_config: Mapping[str, Any] | None = None,
    before: Callable[[Op], None] = lambda op: None,
    wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> Iterator[ToyGateway]:
    """Up and serving on a free port, with everything that must be kept in `folder`. `wrap` may put faults around the
    application."""
    settings = Settings(
        data_dir=folder,
        redis_url="redis://none",
        catalog_url=f"sqlite:///{folder / 'catalog.db'}",
        depot_url=f"file://{folder / 'depot'}",
        gateway=gateway or Gateway(poll_seconds=5.0),
        metrics=metrics or Metrics(),
    )
    with toy_services(settings, limits or Limits(), client_config or {}, before) as (services, worker):
        app = create_app(settings, lambda _: _already(services))
        _, key = services.catalog.create_key("tests", key="tml-tests")
        _, other_key = services.catalog.create_key("others", key="tml-others")
        with serving(wrap(app)) as url:
            yield ToyGateway(url=url, key=key, other_key=other_key, worker=worker, services=services, app=app)


@contextmanager
def toy_services(
    settings: Settings, limits: Limits, client_config: Mapping[str, Any], before: Callable[[Op], None]
) -> Iterator[tuple[Services, ToyWorker]]:
    worker, roster = ToyWorker(before), MemoryRoster()
    ledger = MemoryLedger(worker.ring, limits=limits)
    services = Services(
        settings=settings,
        catalog=Catalog(settings.catalog_at),
        depot=FsspecDepot(settings.depot_at),
        ledger=ledger,
        notices=MemoryNotices(ledger),
        roster=roster,
        timelines=MemoryTimelines(),
        client_config=client_config,
    )
    services.catalog.migrate()
    roster.announce(_info(), ttl_seconds=3600.0)
    worker.start(ledger, services.catalog, services.depot)
    with closing(services.catalog):
        yield services, worker
    worker.stop()
    services.pool.shutdown()


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """The application on a free port of this machine, in a thread; answers its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, name="gateway", daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(timeout=0.01)
        assert server.started, "the gateway did not come up; its log says why"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=10)


@contextmanager
def _already(services: Services) -> Iterator[Services]:
    yield services


def _info() -> WorkerInfo:
    return WorkerInfo(
        id=WorkerId("toy"),
        role=Role.DEVICE,
        host="localhost",
        pid=0,
        cards=(TOY_CARD,),
        slots=1,
        started_at=datetime.now(UTC),
    )
