"""The gateway's application: opens what requests need, mounts the routes. The one place that reads the settings."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from threading import Event
from typing import Final

from fastapi import FastAPI

from openrl.config import Settings
from openrl.domain.errors import OperatorError
from openrl.gateway import faults
from openrl.gateway.auth import KeyCheck
from openrl.gateway.metrics import GatewayMetrics, Measured
from openrl.gateway.routes import (
    checkpoints,
    futures,
    models,
    queues,
    rollouts,
    sampling,
    scores,
    service,
    sessions,
    timeline,
    training,
    weights,
    workers,
)
from openrl.gateway.services import Services, open_services
from openrl.telemetry.endpoint import Told, telling

#: An event loop that does not come round for so long is stuck.
STUCK_SECONDS: Final = 5.0

Opener = Callable[[Settings], AbstractContextManager[Services]]


def create_app(settings: Settings, opener: Opener = open_services) -> FastAPI:
    """An application whose services are open while it runs. Raises OperatorError at its start, and keeps it as
    `state.refused` for whoever runs it."""

    metrics = GatewayMetrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            with opener(settings) as services:
                app.state.services = services
                metrics.tell_queues(services.depths)
                metrics.tell_broker(services.ledger.fullness)
                loop = asyncio.get_running_loop()
                told = Told(registry=metrics.registry, sick=lambda: why_stuck(loop), unready=services.why_unready)
                with telling(settings.metrics, told):
                    yield
        except OperatorError as error:
            app.state.refused = error
            raise

    app = FastAPI(title="OpenRL", lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.state.refused = None
    app.add_middleware(KeyCheck)
    app.add_middleware(Measured, metrics=metrics)  # outermost: refused keys count too
    faults.install(app)
    tinkers = (service, sessions, models, weights, training, sampling, futures, checkpoints)
    for noun in (*tinkers, scores, rollouts, queues, timeline, workers):
        app.include_router(noun.router)
    return app


def why_stuck(loop: asyncio.AbstractEventLoop, seconds: float = STUCK_SECONDS) -> str:
    """From another thread: empty where the loop comes round in time."""
    came = Event()
    loop.call_soon_threadsafe(came.set)
    return "" if came.wait(seconds) else f"the event loop has not come round for {seconds:g} s"
