"""Sample ops, carried out: hands an op to the sample engine and waits for its future."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from openrl.domain.errors import ClaimLost, Draining
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
        self._running: dict[OpId, Future[SampleResult]] = {}
        self._draining = False

    def __call__(self, held: Held) -> Sampled:
        op = held.op
        assert isinstance(op, SampleOp) and isinstance(op.action, Sample)
        with self._lock:
            if self._draining:
                raise Draining
            request = SampleRequest.of(op.action, tenant=op.tenant, sampler=op.sampler)
            future = self._running[op.id] = self._engine.submit(request)
        self._wake()
        try:
            with traces.span("draw", samples=op.action.num_samples):
                return Sampled(result=future.result())
        except CancelledError:
            raise (Draining() if self._draining else ClaimLost(op.id)) from None
        finally:
            with self._lock:
                if self._running.get(op.id) is future:
                    del self._running[op.id]

    def abort(self, op_id: OpId) -> None:
        with self._lock:
            future = self._running.get(op_id)
        if future is not None:
            self._engine.cancel(future)
            self._wake()

    def drain(self) -> None:
        with self._lock:
            self._draining = True
            running = list(self._running.values())
        for future in running:
            self._engine.cancel(future)
        self._wake()
