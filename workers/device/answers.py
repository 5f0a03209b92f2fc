"""Has what waited carried out, and answers whoever waits: a result with its receipt, or an error.

An error that the engine raises, rather than answers, is everybody's. Knows no threads.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from openrl.domain.errors import CallerError
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from workers.device.receipt import PackPart, batch_metrics, step_metrics
from workers.device.waiting import B, BatchWaiting, CallWaiting, StepWaiting

B_contra = TypeVar("B_contra", contravariant=True)


class Trainer(Protocol[B_contra]):
    """What is needed of a train engine: work of several runs in one call, an error in place of a result."""

    @property
    def padding_share(self) -> float: ...
    def forward_backward(self, batches: Sequence[B_contra], /) -> list[BatchResult | CallerError]: ...
    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]], /) -> list[dict[str, float] | CallerError]: ...


def answer_call(item: CallWaiting) -> None:
    try:
        item.future.set_result(item.call())
    except Exception as error:
        item.future.set_exception(error)


def answer_steps(engine: Trainer[B], items: Sequence[StepWaiting]) -> None:
    """All of them in one update."""
    started = time.monotonic()
    try:
        results = engine.optim_steps([(item.run_id, item.params) for item in items])
    except Exception as error:
        _fail(items, error)
        return
    seconds = time.monotonic() - started
    for item, result in zip(items, results, strict=True):
        if isinstance(result, CallerError):
            item.future.set_exception(result)
        else:
            item.future.set_result(result | step_metrics(started - item.since, seconds, len(items)))


def answer_pack(engine: Trainer[B], items: Sequence[BatchWaiting[B]]) -> float | None:
    """The seconds that the pack took; None where not all of it was carried out, so that its time tells nothing."""
    started = time.monotonic()
    try:
        results = engine.forward_backward([item.batch for item in items])
    except Exception as error:
        _fail(items, error)
        return None
    seconds = time.monotonic() - started
    parts = [PackPart(tenant=item.tenant, tokens=item.tokens, waited_seconds=started - item.since) for item in items]
    receipts = batch_metrics(parts, seconds, engine.padding_share)
    for item, result, receipt in zip(items, results, receipts, strict=True):
        if isinstance(result, CallerError):
            item.future.set_exception(result)
        else:
            item.future.set_result(replace(result, metrics=result.metrics | receipt))
    return None if any(isinstance(result, CallerError) for result in results) else seconds


def _fail(items: Sequence[StepWaiting] | Sequence[BatchWaiting[B]], error: Exception) -> None:
    for item in items:
        item.future.set_exception(error)
