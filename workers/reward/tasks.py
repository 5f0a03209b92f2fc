"""Celery's only door into rewards."""

from celery import Celery

from openrl.domain.errors import CallerError
from openrl.domain.ids import OpId
from queues.lanes import REWARD_TASK
from workers import desk
from workers.station import station


def register(app: Celery) -> None:
    app.task(reward_op, name=REWARD_TASK, throws=(CallerError,))


def reward_op(op_id: str) -> None:
    here = station()
    desk.serve(here.ledger, here.keeper, here.reward_work, OpId(op_id))
