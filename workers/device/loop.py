"""The thread that owns the device, or two of them where training and sampling have a device each (a CPU's cores).
Everything that touches a model is called from here and nowhere else."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from openrl.domain.errors import CallerError, Draining
from openrl.domain.ids import TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from openrl.domain.worker import DeviceUse
from workers.device.arbiter import Arbiter, Side
from workers.device.cost import Cost
from workers.device.receipt import Portion, batch_metrics, step_metrics
from workers.device.rota import Rota
from workers.device.tally import Tally

log = logging.getLogger(__name__)
T = TypeVar("T")


class Sized(Protocol):
    """What the loop needs to know of a batch."""

    @property
    def run_id(self) -> str: ...
    @property
    def tokens(self) -> int: ...


B = TypeVar("B", bound=Sized)
B_contra = TypeVar("B_contra", contravariant=True)


class Batcher(Protocol[B_contra]):
    """What the loop needs of a train engine: work of several runs in one call, an error in place of a result."""

    @property
    def padding_share(self) -> float: ...
    def forward_backward(self, batches: Sequence[B_contra], /) -> list[BatchResult | CallerError]: ...
    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]], /) -> list[dict[str, float] | CallerError]: ...


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
    tenant: TenantId
    tokens: int
    since: float
    future: Future[BatchResult] = field(default_factory=Future)


@dataclass(slots=True)
class _Step:
    run_id: str
    params: AdamParams
    since: float
    future: Future[dict[str, float]] = field(default_factory=Future)


class DeviceLoop(Generic[B]):
    """Training calls run one at a time in the order they came; optimizer steps that wait are one call, in the place of
    the first. Forward/backward batches of different runs are handed to the engine in packs that the rota chooses, as
    large as pays by what packs have cost so far; all calls that wait go before the next pack. Sampling advances by
    single decode steps in between."""

    def __init__(
        self,
        train: Batcher[B] | None,
        sample: Stepper | None,
        *,
        pack_tokens: int = 16_384,
        apart: bool = False,
    ) -> None:
        """`apart` gives each engine a thread of its own, and lets whoever asks for an optimizer step take it: on a CPU
        all of these run at once. Engines must then share nothing that changes."""
        self._train, self._sample = train, sample
        self._calls: deque[_Call] = deque()
        self._steps: list[_Step] = []  #: one call stands for all of them
        self._apart = apart
        self._cost = Cost(pack_tokens)
        self._passes: Rota[_Pass[B]] = Rota(pack_tokens, self._cost.enough)
        self._calls_due = 0  #: calls that go before the next pack
        self._tally = Tally()
        self._changed = threading.Condition()  #: guards what waits and the flag
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, args=(sides,), name=f"device {'+'.join(sides)}", daemon=True)
            for sides in ([(side,) for side in Side] if apart else [tuple(Side)])
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the device thread and wait for what it answers or raises."""
        item = _Call(function)
        with self._entering():
            self._calls.append(item)
        return item.future.result()  # type: ignore[return-value]  # the future carries what `function` answers

    def forward_backward(self, batch: B, tenant: TenantId, since: float | None = None) -> BatchResult:
        """Wait for one batch, which is counted as the tenant's and waits `since` then on the monotonic clock (None: it
        came now). Its metrics also tell what it had of the device. Raises the CallerError that concerns it."""
        item = _Pass(batch, tenant, batch.tokens, time.monotonic() if since is None else since)
        with self._entering():
            self._passes.add(item, tenant=tenant, run=batch.run_id, tokens=item.tokens)
        return item.future.result()

    def optim_step(self, run_id: str, params: AdamParams, since: float | None = None) -> dict[str, float]:
        """Wait for a run's one step, which waits `since` then as in `forward_backward`. Its metrics also tell what it
        had of the device. Raises the CallerError that concerns it."""
        item = _Step(run_id, params, time.monotonic() if since is None else since)
        with self._entering():
            if not self._apart:
                if not self._steps:
                    self._calls.append(_Call(self._step_all))
                self._steps.append(item)
        if self._apart:
            self._step([item])
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
            waiting: list[_Call | _Step | _Pass[B]] = [*self._calls, *self._steps, *self._passes.clear()]
            self._calls.clear()
            self._steps.clear()
            self._changed.notify_all()
        for item in waiting:
            item.future.set_exception(Draining())
        for thread in self._threads:
            thread.join(timeout=60)

    @contextmanager
    def _entering(self) -> Iterator[None]:
        with self._changed:
            if self._stopping:
                raise Draining
            yield
            self._changed.notify_all()

    def _run(self, sides: Sequence[Side]) -> None:
        arbiter = Arbiter()
        while (side := self._next_side(sides, arbiter)) is not None:
            with self._tally.timing(side) as timed:
                self._train_once() if side is Side.TRAIN else self._sample_once()
            arbiter.spent(side, timed.seconds, contested=any(self._wanted(other) for other in sides if other != side))

    def _next_side(self, sides: Sequence[Side], arbiter: Arbiter) -> Side | None:
        """Wait until somebody wants the device; None when the loop is to end."""
        with self._changed:
            while not self._stopping:
                side = arbiter.next(**{side: side in sides and self._wanted(side) for side in Side})
                if side is not None:
                    return side
                self._changed.wait()
            return None

    def _wanted(self, side: Side) -> bool:
        if side is Side.TRAIN:
            return bool(self._calls) or bool(self._passes)
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

    def _step_all(self) -> None:
        with self._changed:
            items, self._steps = self._steps, []
        self._step(items)

    def _step(self, items: Sequence[_Step]) -> None:
        assert self._train is not None
        started = time.monotonic()
        try:
            results = self._train.optim_steps([(item.run_id, item.params) for item in items])
        except Exception as error:
            for item in items:
                item.future.set_exception(error)
            return
        seconds = time.monotonic() - started
        for item, result in zip(items, results, strict=True):
            if isinstance(result, CallerError):
                item.future.set_exception(result)
            else:
                receipt = step_metrics(started - item.since, seconds, len(items))
                item.future.set_result(result | receipt)

    def _pass(self, items: list[_Pass[B]]) -> None:
        assert self._train is not None
        started = time.monotonic()
        try:
            results = self._train.forward_backward([item.batch for item in items])
        except Exception as error:
            for item in items:
                item.future.set_exception(error)
            return
        pack = [Portion(tenant=item.tenant, tokens=item.tokens, waited_seconds=started - item.since) for item in items]
        seconds = time.monotonic() - started
        receipts = batch_metrics(pack, seconds, self._train.padding_share)
        for item, result, receipt in zip(items, results, receipts, strict=True):
            if isinstance(result, CallerError):
                item.future.set_exception(result)
            else:
                item.future.set_result(replace(result, metrics=result.metrics | receipt))
        if all(isinstance(result, BatchResult) for result in results):  # what was refused cost next to nothing
            self._cost.learn(sum(item.tokens for item in items), len(items), seconds)


def _answer(future: Future[object], call: Callable[[], object]) -> None:
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
