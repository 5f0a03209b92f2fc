"""Celery's only door into sampling."""

from celery import Celery

from openrl.domain.errors import CallerError
from openrl.domain.ids import OpId
from queues.lanes import SAMPLE_TASK
from workers import desk
from workers.station import station


def register(app: Celery) -> None:
    app.task(sample_op, name=SAMPLE_TASK, throws=(CallerError,))


def sample_op(op_id: str) -> None:
    here = station()
    desk.serve(here.ledger, here.keeper, here.sample_work, OpId(op_id))
