"""Celery's only door into rewards."""

from typing import Any

from celery import Celery

from openrl.domain.errors import CallerError
from openrl.domain.ids import OpId
from queues.bell import trace_of
from queues.lanes import REWARD_TASK
from workers import desk
from workers.station import station


def register(app: Celery) -> None:
    app.task(reward_op, name=REWARD_TASK, bind=True, throws=(CallerError,))


def reward_op(self: Any, op_id: str) -> None:
    here = station()
    desk.serve(here.ledger, here.keeper, here.reward_work, OpId(op_id), trace_of(self))
