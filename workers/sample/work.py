"""Sample ops, carried out: hands an op's prompts to the sample engine and waits for their futures."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future

from openrl.domain.errors import ClaimLost, Draining, FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.op import Sample, SampleOp
from openrl.domain.outcome import Sampled
from openrl.domain.sampling import SampleResult
from openrl.ledger.port import Held
from openrl.telemetry import traces
from workers.sample.port import Sampler
from workers.sample.request import SampleRequest


class SampleWork:
    def __init__(self, engine: Sampler, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` tells whoever drives the engine that there is something to do; an engine may drive itself."""
        self._engine, self._wake = engine, wake
        self._lock = threading.Lock()
        self._running: dict[OpId, list[Future[SampleResult]]] = {}
        self._draining = False

    def __call__(self, held: Held) -> Sampled:
        op = held.op
        assert isinstance(op, SampleOp) and isinstance(op.action, Sample)
        (drawn,) = self.draw(op, [op.action])
        if isinstance(drawn, FieldInvalid):
            raise drawn
        return Sampled(result=drawn)

    def draw(self, op: SampleOp, samples: Sequence[Sample]) -> list[SampleResult | FieldInvalid]:
        """All that one op asks for, side by side. What the engine refuses costs the others nothing; any other error is
        the op's."""
        with self._lock:
            if self._draining:
                raise Draining
            requests = [SampleRequest.of(sample, tenant=op.tenant, sampler=op.sampler) for sample in samples]
            futures = self._running[op.id] = [self._engine.submit(request) for request in requests]
        self._wake()
        try:
            with traces.span("draw", samples=sum(sample.num_samples for sample in samples)):
                return [_drawn(future) for future in futures]
        except CancelledError:
            raise (Draining() if self._draining else ClaimLost(op.id)) from None
        finally:
            self._cancel(futures)
            with self._lock:
                if self._running.get(op.id) is futures:
                    del self._running[op.id]

    def abort(self, op_id: OpId) -> None:
        with self._lock:
            futures = self._running.get(op_id, [])
        self._cancel(futures)

    def drain(self) -> None:
        with self._lock:
            self._draining = True
            running = [future for futures in self._running.values() for future in futures]
        self._cancel(running)

    def _cancel(self, futures: Sequence[Future[SampleResult]]) -> None:
        unfinished = [future for future in futures if not future.done()]
        for future in unfinished:
            self._engine.cancel(future)
        if unfinished:
            self._wake()


def _drawn(future: Future[SampleResult]) -> SampleResult | FieldInvalid:
    try:
        return future.result()
    except FieldInvalid as error:
        return error
