"""Has what waited carried out, and answers whoever waits: a result with its receipt, or an error. Knows no threads."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeAlias, TypeVar

from openrl.domain.errors import CallerError, EngineBusy, OpenRLError
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from openrl.telemetry import traces
from workers.device.receipt import PackPart, batch_metrics, step_metrics
from workers.device.waiting import B, BatchWaiting, CallWaiting, StepWaiting

log = logging.getLogger(__name__)
B_contra = TypeVar("B_contra", contravariant=True)

#: A step's metrics, or the error that concerns its run.
StepOutcome: TypeAlias = dict[str, float] | CallerError | EngineBusy


class Trainer(Protocol[B_contra]):
    """What is needed of a train engine: work of several runs in one call, an error in place of a result."""

    @property
    def padding_share(self) -> float: ...
    def forward_backward(self, batches: Sequence[B_contra], /) -> list[BatchResult | CallerError]: ...
    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]], /) -> Sequence[StepOutcome]: ...


def answer_call(item: CallWaiting) -> None:
    try:
        item.future.set_result(item.call())
    except Exception as error:
        item.future.set_exception(error)


def answer_steps(engine: Trainer[B], items: Sequence[StepWaiting]) -> None:
    """All of them in one update."""
    started = time.monotonic()
    with _answered(items):
        results = engine.optim_steps([(item.run_id, item.params) for item in items])
        seconds = time.monotonic() - started
        for item, result in zip(items, results, strict=True):
            traces.ended("update", item.trace, seconds, together=len(items))
            if isinstance(result, OpenRLError):
                item.future.set_exception(result)
            else:
                item.future.set_result(result | step_metrics(started - item.since, seconds, len(items)))


def answer_pack(engine: Trainer[B], items: Sequence[BatchWaiting[B]]) -> float | None:
    """The seconds that the pack took; None where not all of it was carried out, so that its time tells nothing."""
    started = time.monotonic()
    with _answered(items):
        results = engine.forward_backward([item.batch for item in items])
        seconds = time.monotonic() - started
        parts = [
            PackPart(tenant=each.tenant, tokens=each.tokens, waited_seconds=started - each.since) for each in items
        ]
        receipts = batch_metrics(parts, seconds, engine.padding_share)
        for item, result, receipt in zip(items, results, receipts, strict=True):
            traces.ended("pack", item.trace, seconds, batches=len(items), tokens=sum(each.tokens for each in items))
            if isinstance(result, CallerError):
                item.future.set_exception(result)
            else:
                item.future.set_result(replace(result, metrics=result.metrics | receipt))
        return seconds if all(isinstance(result, BatchResult) for result in results) else None
    return None


@contextmanager
def _answered(items: Sequence[StepWaiting] | Sequence[BatchWaiting[B]]) -> Iterator[None]:
    """Whatever goes wrong inside is the answer to all that have none yet: a thread that it ended would leave everybody
    without one."""
    try:
        yield
    except Exception as error:
        log.exception("a call of the train engine failed", extra={"action": "train"})
        for item in items:
            if not item.future.done():
                item.future.set_exception(error)
