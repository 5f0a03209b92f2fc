"""The thread that owns the device, or two of them where training and sampling have a device each (a CPU's cores).
Everything that touches a model is called from here and nowhere else."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from openrl.domain.errors import Draining
from openrl.domain.ids import RunId, TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from openrl.domain.stretch import Doing, Owner
from openrl.domain.worker import DeviceUse
from openrl.telemetry import traces
from workers import metrics
from workers.device.answers import Trainer, answer_call, answer_pack, answer_steps
from workers.device.arbiter import Arbiter, Side
from workers.device.cost import Cost
from workers.device.tally import Tally
from workers.device.timeline import Timeline
from workers.device.waiting import B, BatchWaiting, CallWaiting, StepWaiting, Waiting

log = logging.getLogger(__name__)
T = TypeVar("T")


class Stepper(Protocol):
    """What is needed of a sample engine."""

    @property
    def idle(self) -> bool: ...
    @property
    def tokens_drawn(self) -> int: ...
    @property
    def served(self) -> Set[Owner]: ...
    def step(self) -> bool: ...


class DeviceLoop(Generic[B]):
    """Training goes in the order of `waiting.py`, in packs as large as pays by what packs have cost so far. Sampling
    advances by single decode steps in between."""

    def __init__(
        self,
        train: Trainer[B] | None,
        sample: Stepper | None,
        *,
        pack_tokens: int = 16_384,
        apart: bool = False,
    ) -> None:
        """`apart` gives each engine a thread of its own, and lets whoever asks for an optimizer step take it: on a CPU
        all of these run at once. Engines must then share nothing that changes."""
        self._train, self._sample = train, sample
        self._apart = apart
        self._cost = Cost(pack_tokens)
        self._waiting: Waiting[B] = Waiting(pack_tokens, self._cost.enough)
        self._tally = Tally()
        self.timeline = Timeline()  #: what the device did, to be told
        self._changed = threading.Condition()  #: guards what waits and the flag
        self._stopping = self._trains_no_more = False
        self._threads = [
            threading.Thread(target=self._run, args=(sides,), name=f"device {'+'.join(sides)}", daemon=True)
            for sides in ([(side,) for side in Side] if apart else [tuple(Side)])
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the device thread and wait for what it answers or raises."""
        item = CallWaiting(lambda: self._call(function))
        with self._entering():
            self._waiting.add_call(item)
        return item.future.result()  # type: ignore[return-value]  # the future carries what `function` answers

    def forward_backward(self, batch: B, tenant: TenantId, since: float | None = None) -> BatchResult:
        """Wait for one batch, which is counted as the tenant's and waits `since` then on the monotonic clock (None: it
        came now). Its metrics also tell what it had of the device. Raises the CallerError that concerns it."""
        began = time.monotonic() if since is None else since
        item = BatchWaiting(batch, tenant, batch.tokens, began, traces.present())
        with self._entering():
            self._waiting.add_batch(item)
        return item.future.result()

    def optim_step(
        self, run_id: str, params: AdamParams, tenant: TenantId, since: float | None = None
    ) -> dict[str, float]:
        """Wait for a run's one step, which waits `since` then as in `forward_backward`. Its metrics also tell what it
        had of the device. Raises the CallerError that concerns it, or EngineBusy."""
        began = time.monotonic() if since is None else since
        item = StepWaiting(run_id, params, tenant, began, traces.present())
        with self._entering():
            if not self._apart:
                self._waiting.add_step(item, self._step_all)
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

    def end_training(self) -> None:
        """Finish what of training is on the device; what waits ends with Draining, and so does what comes. Sampling
        goes on."""
        with self._changed:
            self._trains_no_more = True
            waiting = self._waiting.clear()
        for item in waiting:
            item.future.set_exception(Draining())

    def stop(self) -> None:
        """Finish what is on the device; everything waiting ends with Draining."""
        self.end_training()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=60)

    @contextmanager
    def _entering(self) -> Iterator[None]:
        with self._changed:
            if self._trains_no_more:
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
            return bool(self._waiting)
        return self._sample is not None and not self._sample.idle

    def _sample_once(self) -> None:
        assert self._sample is not None
        before, began = self._sample.tokens_drawn, self.timeline.now()
        try:
            self._sample.step()
        except Exception:
            log.exception("a decode step failed", extra={"action": "step"})
        if self._sample.served:
            self.timeline.note(Doing.SAMPLE, began, self._sample.served)
        self._tally.count(Side.SAMPLE, self._sample.tokens_drawn - before)

    def _train_once(self) -> None:
        with self._changed:
            taken = self._waiting.take()
        if isinstance(taken, CallWaiting):
            answer_call(taken)
        elif taken:
            self._run_pack(taken)

    def _run_pack(self, items: Sequence[BatchWaiting[B]]) -> None:
        assert self._train is not None
        began, tokens = self.timeline.now(), sum(item.tokens for item in items)
        seconds = answer_pack(self._train, items)
        self.timeline.note(Doing.PACK, began, {Owner(item.tenant, RunId(item.batch.run_id)) for item in items})
        metrics.PACK_BATCHES.observe(len(items))
        if seconds is not None:
            metrics.PACK.observe(seconds)
            self._cost.learn(tokens, len(items), seconds)
        self._tally.count(Side.TRAIN, tokens)
        with self._changed:
            self._waiting.pack_ended()

    def _step_all(self) -> None:
        with self._changed:
            items = self._waiting.take_steps()
        self._step(items)

    def _step(self, items: Sequence[StepWaiting]) -> None:
        assert self._train is not None
        began = self.timeline.now()
        with metrics.UPDATE.time():
            answer_steps(self._train, items)
        self.timeline.note(Doing.UPDATE, began, {Owner(item.tenant, RunId(item.run_id)) for item in items})

    def _call(self, function: Callable[[], T]) -> T:
        began = self.timeline.now()
        try:
            return function()
        finally:
            self.timeline.note(Doing.CALL, began)
