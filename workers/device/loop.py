"""The thread that owns the device. Everything that touches a model is called from here and nowhere else."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from openrl.domain.errors import CallerError, Draining
from openrl.domain.outcome import BatchResult
from workers.device.arbiter import Arbiter, Side

log = logging.getLogger(__name__)
T = TypeVar("T")
B = TypeVar("B")
B_contra = TypeVar("B_contra", contravariant=True)


class Batcher(Protocol[B_contra]):
    """What the loop needs of a train engine: batches of several runs in one call, an error in place of a result."""

    def forward_backward(self, batches: Sequence[B_contra], /) -> list[BatchResult | CallerError]: ...


class Stepper(Protocol):
    """What the loop needs of a sample engine."""

    @property
    def idle(self) -> bool: ...
    def step(self) -> bool: ...


@dataclass(slots=True)
class _Call:
    call: Callable[[], object]
    future: Future[object] = field(default_factory=Future)


@dataclass(slots=True)
class _Pass(Generic[B]):
    batch: B
    future: Future[BatchResult] = field(default_factory=Future)


class DeviceLoop(Generic[B]):
    """Training calls run in the order they came, one at a time, except that forward/backward batches waiting together
    (each of another run) are handed to the engine as one. Sampling advances by single decode steps in between."""

    def __init__(self, train: Batcher[B] | None, sample: Stepper | None) -> None:
        self._train, self._sample = train, sample
        self._queue: deque[_Call | _Pass[B]] = deque()
        self._arbiter = Arbiter()
        self._changed = threading.Condition()  #: guards the queue and the flag
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the device thread and wait for what it answers or raises."""
        item = _Call(function)
        self._enter(item)
        return item.future.result()  # type: ignore[return-value]  # the future carries what `function` answers

    def forward_backward(self, batch: B) -> BatchResult:
        """Wait for one batch. Raises the CallerError that concerns it."""
        item = _Pass(batch)
        self._enter(item)
        return item.future.result()

    def wake(self) -> None:
        """There is something to sample."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Finish what is on the device; everything waiting ends with Draining."""
        with self._changed:
            self._stopping = True
            waiting, self._queue = self._queue, deque()
            self._changed.notify_all()
        for item in waiting:
            item.future.set_exception(Draining())
        self._thread.join(timeout=60)

    def _enter(self, item: _Call | _Pass[B]) -> None:
        with self._changed:
            if self._stopping:
                raise Draining
            self._queue.append(item)
            self._changed.notify_all()

    def _run(self) -> None:
        while (side := self._next_side()) is not None:
            started = time.monotonic()
            self._train_once() if side is Side.TRAIN else self._sample_once()
            contested = bool(self._queue) if side is Side.SAMPLE else self._sampling()
            self._arbiter.spent(side, time.monotonic() - started, contested=contested)

    def _next_side(self) -> Side | None:
        """Wait until somebody wants the device; None when the loop is to end."""
        with self._changed:
            while not self._stopping:
                side = self._arbiter.next(train=bool(self._queue), sample=self._sampling())
                if side is not None:
                    return side
                self._changed.wait()
            return None

    def _sampling(self) -> bool:
        return self._sample is not None and not self._sample.idle

    def _sample_once(self) -> None:
        assert self._sample is not None
        try:
            self._sample.step()
        except Exception:
            log.exception("a decode step failed", extra={"action": "step"})

    def _train_once(self) -> None:
        taken = self._take()
        if isinstance(taken, _Call):
            _answer(taken.future, taken.call)
        elif taken:
            self._pass(taken)

    def _take(self) -> _Call | list[_Pass[B]]:
        """The first waiting call; or, where a pass is first, all passes that wait."""
        with self._changed:
            if self._queue and isinstance(self._queue[0], _Call):
                return self._queue.popleft()  # type: ignore[return-value]  # just seen to be a call
            passes = [item for item in self._queue if isinstance(item, _Pass)]
            self._queue = deque(item for item in self._queue if isinstance(item, _Call))
            return passes

    def _pass(self, items: list[_Pass[B]]) -> None:
        assert self._train is not None
        try:
            results = self._train.forward_backward([item.batch for item in items])
        except Exception as error:
            for item in items:
                item.future.set_exception(error)
            return
        for item, result in zip(items, results, strict=True):
            if isinstance(result, CallerError):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)


def _answer(future: Future[object], call: Callable[[], object]) -> None:
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
