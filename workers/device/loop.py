"""The thread that owns the device. Everything that touches a model is called from here and nowhere else."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from openrl.domain.errors import CallerError, Draining
from openrl.domain.ids import TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.worker import DeviceUse
from workers.device.arbiter import Arbiter, Side
from workers.device.rota import Rota
from workers.device.tally import Tally

log = logging.getLogger(__name__)
T = TypeVar("T")


class Portion(Protocol):
    """What the loop needs to know of a batch."""

    @property
    def run_id(self) -> str: ...
    @property
    def tokens(self) -> int: ...


B = TypeVar("B", bound=Portion)
B_contra = TypeVar("B_contra", contravariant=True)


class Batcher(Protocol[B_contra]):
    """What the loop needs of a train engine: batches of several runs in one call, an error in place of a result."""

    def forward_backward(self, batches: Sequence[B_contra], /) -> list[BatchResult | CallerError]: ...


class Stepper(Protocol):
    """What the loop needs of a sample engine."""

    @property
    def idle(self) -> bool: ...
    @property
    def tokens_drawn(self) -> int: ...
    def step(self) -> bool: ...


@dataclass(slots=True)
class _Call:
    call: Callable[[], object]
    future: Future[object] = field(default_factory=Future)


@dataclass(slots=True)
class _Pass(Generic[B]):
    batch: B
    tokens: int
    future: Future[BatchResult] = field(default_factory=Future)


class DeviceLoop(Generic[B]):
    """Training calls run one at a time in the order they came. Forward/backward batches of different runs are handed to
    the engine in packs that the rota chooses; all calls that wait go before the next pack. Sampling advances by single
    decode steps in between."""

    def __init__(self, train: Batcher[B] | None, sample: Stepper | None, *, pack_tokens: int = 16_384) -> None:
        self._train, self._sample = train, sample
        self._calls: deque[_Call] = deque()
        self._passes: Rota[_Pass[B]] = Rota(pack_tokens)
        self._calls_due = 0  #: calls that go before the next pack
        self._arbiter = Arbiter()
        self._tally = Tally()
        self._changed = threading.Condition()  #: guards what waits and the flag
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the device thread and wait for what it answers or raises."""
        item = _Call(function)
        with self._entering():
            self._calls.append(item)
        return item.future.result()  # type: ignore[return-value]  # the future carries what `function` answers

    def forward_backward(self, batch: B, tenant: TenantId) -> BatchResult:
        """Wait for one batch, which is counted as the tenant's. Raises the CallerError that concerns it."""
        item = _Pass(batch, batch.tokens)
        with self._entering():
            self._passes.add(item, tenant=tenant, run=batch.run_id, tokens=item.tokens)
        return item.future.result()

    def use(self) -> DeviceUse:
        """How busy the device was so far, what runs now included."""
        return self._tally.read()

    def wake(self) -> None:
        """There is something to sample."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Finish what is on the device; everything waiting ends with Draining."""
        with self._changed:
            self._stopping = True
            waiting: list[_Call | _Pass[B]] = [*self._calls, *self._passes.clear()]
            self._calls.clear()
            self._changed.notify_all()
        for item in waiting:
            item.future.set_exception(Draining())
        self._thread.join(timeout=60)

    @contextmanager
    def _entering(self) -> Iterator[None]:
        with self._changed:
            if self._stopping:
                raise Draining
            yield
            self._changed.notify_all()

    def _run(self) -> None:
        while (side := self._next_side()) is not None:
            with self._tally.timing(side):
                self._train_once() if side is Side.TRAIN else self._sample_once()
            contested = self._training() if side is Side.SAMPLE else self._sampling()
            self._arbiter.spent(side, self._tally.last_seconds, contested=contested)

    def _next_side(self) -> Side | None:
        """Wait until somebody wants the device; None when the loop is to end."""
        with self._changed:
            while not self._stopping:
                side = self._arbiter.next(train=self._training(), sample=self._sampling())
                if side is not None:
                    return side
                self._changed.wait()
            return None

    def _training(self) -> bool:
        return bool(self._calls) or bool(self._passes)

    def _sampling(self) -> bool:
        return self._sample is not None and not self._sample.idle

    def _sample_once(self) -> None:
        assert self._sample is not None
        before = self._sample.tokens_drawn
        try:
            self._sample.step()
        except Exception:
            log.exception("a decode step failed", extra={"action": "step"})
        self._tally.count(Side.SAMPLE, self._sample.tokens_drawn - before)

    def _train_once(self) -> None:
        taken = self._take()
        if isinstance(taken, _Call):
            _answer(taken.future, taken.call)
        elif taken:
            self._pass(taken)
            self._tally.count(Side.TRAIN, sum(item.tokens for item in taken))
            with self._changed:
                self._calls_due = len(self._calls)

    def _take(self) -> _Call | list[_Pass[B]]:
        """The calls that came before the last pack ended, then the next pack: neither many calls nor many batches keep
        the others waiting for long."""
        with self._changed:
            if self._calls and (self._calls_due or not self._passes):
                self._calls_due = max(0, self._calls_due - 1)
                return self._calls.popleft()
            return self._passes.next_pack()

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
