"""What waits to be trained on a device, and which of it goes next. Knows no engine; its owner lets in one thread at a
time.

Calls go one by one in the order they came. Optimizer steps that wait are one call, in the place of the first. Batches
go in packs; the calls that wait when a pack has ended go before the next one, so that neither many calls nor many
batches keep the others waiting for long.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from openrl.domain.ids import TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from workers.device.rota import Rota


class Sized(Protocol):
    """What has to be known of a batch."""

    @property
    def run_id(self) -> str: ...
    @property
    def tokens(self) -> int: ...


B = TypeVar("B", bound=Sized)


@dataclass(slots=True)
class CallWaiting:
    call: Callable[[], object]
    future: Future[object] = field(default_factory=Future)


@dataclass(slots=True)
class BatchWaiting(Generic[B]):
    batch: B
    tenant: TenantId
    tokens: int
    since: float  #: on the monotonic clock
    trace: object = None  #: where its thread is in a trace
    future: Future[BatchResult] = field(default_factory=Future)


@dataclass(slots=True)
class StepWaiting:
    run_id: str
    params: AdamParams
    tenant: TenantId
    since: float  #: on the monotonic clock
    trace: object = None  #: where its thread is in a trace
    future: Future[dict[str, float]] = field(default_factory=Future)


class Waiting(Generic[B]):
    """Packs have at most `pack_tokens` tokens, or end earlier where `enough` says so (see `rota.py`)."""

    def __init__(self, pack_tokens: int, enough: Callable[[int, int], bool]) -> None:
        self.calls: deque[CallWaiting] = deque()
        self.steps: list[StepWaiting] = []  #: one call stands for all of them
        self.batches: Rota[BatchWaiting[B]] = Rota(pack_tokens, enough)
        self._calls_due = 0  #: calls that go before the next pack

    def __bool__(self) -> bool:
        return bool(self.calls) or bool(self.batches)

    def add_call(self, item: CallWaiting) -> None:
        self.calls.append(item)

    def add_batch(self, item: BatchWaiting[B]) -> None:
        self.batches.add(item, tenant=item.tenant, run=item.batch.run_id, tokens=item.tokens)

    def add_step(self, item: StepWaiting, step_all: Callable[[], object]) -> None:
        """`step_all` is the call for all steps that wait when its turn comes."""
        if not self.steps:
            self.calls.append(CallWaiting(step_all))
        self.steps.append(item)

    def take(self) -> CallWaiting | list[BatchWaiting[B]]:
        """The next call, or the next pack; a pack is empty only when nothing waits."""
        if self.calls and (self._calls_due or not self.batches):
            self._calls_due = max(0, self._calls_due - 1)
            return self.calls.popleft()
        return self.batches.next_pack()

    def pack_ended(self) -> None:
        """What calls for the device now is to be served before the next pack."""
        self._calls_due = len(self.calls)

    def take_steps(self) -> list[StepWaiting]:
        """All of them."""
        steps, self.steps = self.steps, []
        return steps

    def clear(self) -> list[CallWaiting | StepWaiting | BatchWaiting[B]]:
        """Take out everything."""
        items: list[CallWaiting | StepWaiting | BatchWaiting[B]] = [*self.calls, *self.steps, *self.batches.clear()]
        self.calls.clear()
        self.steps.clear()
        return items
