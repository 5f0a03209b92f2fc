"""Ringing: one small Celery message that names an op. It may get lost or come twice; the ledger copes with both."""

import logging
from collections.abc import Callable
from typing import Any, Final

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import OutOfMemoryError

from openrl.domain.op import Bell

TRACE: Final = "traceparent"  #: header of a message whose op is traced

log = logging.getLogger(__name__)


def ringer(app: Celery) -> Callable[[Bell], None]:
    """A function that rings a bell through `app`. A broker that cannot be reached or is full is logged, not raised: the
    row is in the ledger, and its sweep rings again."""

    def ring(bell: Bell) -> None:
        try:
            app.send_task(
                bell.task,
                args=(bell.op,),
                task_id=bell.op,
                queue=bell.queue,
                argsrepr=bell.summary,
                kwargsrepr="",
                headers={TRACE: bell.trace} if bell.trace else None,
                ignore_result=True,
                retry=False,
            )
        except (OperationalError, ConnectionError, OutOfMemoryError) as error:
            log.warning("bell lost, to be rung again: %s", error, extra={"action": "ring", "op": bell.op})

    return ring


def trace_of(task: Any) -> str:
    """The traceparent of the bell that a (bound) task answers; empty where it has none."""
    return str((task.request.headers or {}).get(TRACE) or "")
