"""What the gateway counts, and what it tells of the queues. No tenant is named."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openrl.domain.errors import OpenRLError
from openrl.gateway.depth import Depth
from openrl.telemetry import traces

METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
POLL_PATH: Final = "/api/v1/retrieve_future"
#: A poll is held for as long as the SDK waits.
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 45.0)


class GatewayMetrics:
    """Of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "openrl_http_requests",
            "Requests answered, by route and status; status 0: the client went, or no answer began",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "openrl_http_request_seconds",
            "From a request's head to the end of its answer; polls wait for results",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.polls = Gauge("openrl_http_polls", "Polls for results that are held open", registry=self.registry)

    def tell_queues(self, depths: Callable[[], Iterable[Depth]]) -> None:
        """`depths` may raise OpenRLError where the ledger does not answer."""
        self.registry.register(QueueCollector(depths))

    def tell_broker(self, fullness: Callable[[], float | None]) -> None:
        """`fullness` may raise OpenRLError where the ledger does not answer."""
        self.registry.register(BrokerCollector(fullness))


class BrokerCollector(Collector):
    """How full the broker is; nothing where its memory has no bound, or while it does not answer."""

    def __init__(self, fullness: Callable[[], float | None]) -> None:
        self._fullness = fullness

    def describe(self) -> list[Metric]:
        return [_fullness(0)]

    def collect(self) -> Iterator[Metric]:
        with suppress(OpenRLError):
            share = self._fullness()
            if share is not None:
                yield _fullness(share)


def _fullness(share: float) -> Metric:
    text = "Share of the broker's memory in use, where that has a bound; from 0.9 on new work is refused"
    return GaugeMetricFamily("openrl_broker_memory_share", text, value=share)


class QueueCollector(Collector):
    """What stands in the queues, asked when somebody scrapes; all gateways tell the same."""

    def __init__(self, depths: Callable[[], Iterable[Depth]]) -> None:
        self._depths = depths

    def describe(self) -> list[Metric]:
        return [*_families().values(), _known(0)]

    def collect(self) -> Iterator[Metric]:
        """Nothing is told of queues that cannot be counted: a zero would scale workers away."""
        try:
            depths = list(self._depths())
        except OpenRLError:
            yield _known(0)
            return
        yield _known(1)
        families = _families()
        for depth in depths:
            for name, value in _values(depth).items():
                families[name].add_metric((depth.kind, depth.base_model), value)
        yield from families.values()


def _known(value: float) -> Metric:
    return GaugeMetricFamily("openrl_queues_known", "1 where the ledger told what stands in the queues", value=value)


def _families() -> dict[str, GaugeMetricFamily]:
    helps = {
        "waiting": "Operations that nobody holds; those behind them in their runs too",
        "held": "Operations that a worker holds",
        "demand": "Waiting and held: over the slots of one worker, the workers there should be",
        "slots": "Operations that live workers take at once; of samples and rewards one tenant alone gets half",
        "workers": "Live workers that take from the queue, without those that are draining",
        "oldest_seconds": "Age of the oldest that waits; 0 where none does",
    }
    return {
        name: GaugeMetricFamily(f"openrl_queue_{name}", text, labels=("kind", "base_model"))
        for name, text in helps.items()
    }


def _values(depth: Depth) -> dict[str, float]:
    return {
        "waiting": depth.waiting,
        "held": depth.held,
        "demand": depth.waiting + depth.held,
        "slots": depth.slots,
        "workers": depth.workers,
        "oldest_seconds": depth.oldest_seconds or 0.0,
    }


class Measured:
    """ASGI middleware: counts, times and traces requests by the route that answered them."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status, began = 0, time.perf_counter()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        polls = scope["path"] == POLL_PATH
        if polls:
            self._metrics.polls.inc()
        try:
            with traces.span("HTTP", _trace(scope)) as span:
                try:
                    await self._app(scope, receive, sending)
                finally:
                    _describe(span, scope, status)
        except Exception:
            status = 500  # whoever stands before this answers it
            raise
        finally:
            if polls:
                self._metrics.polls.dec()
            self._count(scope, status, time.perf_counter() - began)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = _asked(scope)
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)


def _asked(scope: Scope) -> tuple[str, str]:
    """Method and route; never the path itself, for anybody may make up paths."""
    method = scope["method"] if scope["method"] in METHODS else "other"
    return method, getattr(scope.get("route"), "path", "none")


def _trace(scope: Scope) -> str:
    """The trace that the client goes on with."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"), "")


def _describe(span: Any, scope: Scope, status: int) -> None:
    """In OpenTelemetry's words for HTTP, once the route is known."""
    if span is None:
        return
    method, route = _asked(scope)
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
