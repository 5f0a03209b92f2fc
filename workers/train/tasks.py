"""Celery's only door into training."""

from typing import Any

from celery import Celery

from openrl.domain.errors import CallerError
from openrl.domain.ids import OpId
from queues.bell import trace_of
from queues.lanes import TRAIN_TASKS
from workers import desk
from workers.station import station


def register(app: Celery) -> None:
    """One door under a telling name for every training action."""
    for name in TRAIN_TASKS:
        app.task(train_op, name=name, bind=True, throws=(CallerError,))


def train_op(self: Any, op_id: str) -> None:
    here = station()
    desk.serve(here.ledger, here.keeper, here.train_work, OpId(op_id), trace_of(self))
