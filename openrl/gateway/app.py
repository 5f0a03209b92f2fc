"""The gateway's application: opens what requests need, mounts the routes. The one place that reads the settings."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from fastapi import FastAPI

from openrl.config import Settings
from openrl.gateway import faults
from openrl.gateway.auth import KeyCheck
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
    training,
    weights,
    workers,
)
from openrl.gateway.services import Services, open_services

Opener = Callable[[Settings], AbstractContextManager[Services]]


def create_app(settings: Settings, opener: Opener = open_services) -> FastAPI:
    """An application whose services are open while it runs. Raises OperatorError at its start."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with opener(settings) as services:
            app.state.services = services
            yield

    app = FastAPI(title="OpenRL", lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.add_middleware(KeyCheck)
    faults.install(app)
    tinkers = (service, sessions, models, weights, training, sampling, futures, checkpoints)
    for noun in (*tinkers, scores, rollouts, queues, workers):
        app.include_router(noun.router)
    return app
