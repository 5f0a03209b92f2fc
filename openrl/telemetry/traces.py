"""Traces by OpenTelemetry, where the environment names who receives them; else nothing of it is even imported.

One op is one trace: the request that brought it in, its work at a worker, and its part of the engine's. The row of the
op carries the trace from one to the other, as W3C's `traceparent`.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

#: Standard names, see OpenTelemetry's documentation.
RECEIVERS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_tracer: Any = None  #: OpenTelemetry's; None: traces are off


def wanted(environment: Mapping[str, str]) -> bool:
    return (
        any(environment.get(name) for name in RECEIVERS)
        and environment.get("OTEL_SDK_DISABLED", "").lower() != "true"
        and environment.get("OTEL_TRACES_EXPORTER", "otlp") != "none"
    )


@contextmanager
def exporting(service: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Send spans until the block ends, under the name of the service unless OTEL_SERVICE_NAME has another. Raises
    ModuleNotFoundError without the extra `otel`."""
    if not wanted(environment):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    with recording(provider):
        yield
    provider.shutdown()


@contextmanager
def recording(provider: Any) -> Iterator[None]:
    """Give spans to a provider until the block ends."""
    global _tracer
    _tracer = provider.get_tracer("openrl")
    try:
        yield
    finally:
        _tracer = None


def span(name: str, parent: str = "", **attributes: str | float | None) -> AbstractContextManager[Any]:
    """A span for as long as the block lasts, inside of the present one, or of the remote `parent` that a traceparent
    names. The block gets it, or None while traces are off."""
    if _tracer is None:
        return nullcontext()
    told: AbstractContextManager[Any] = _tracer.start_as_current_span(
        name, context=_remote(parent), attributes=_told(attributes)
    )
    return told


def traceparent() -> str:
    """The present span, for whoever goes on with its trace elsewhere; empty for none."""
    if _tracer is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


def present() -> Any:
    """Where a thread is, for `ended` in another; None while traces are off."""
    if _tracer is None:
        return None
    from opentelemetry import context

    return context.get_current()


def ended(name: str, where: Any, seconds: float, **attributes: str | float | None) -> None:
    """What ended just now and took so long, as a span inside of the one `where` somebody was."""
    if _tracer is None or where is None:
        return
    now = time.time_ns()
    began = _tracer.start_span(name, context=where, start_time=now - int(seconds * 1e9), attributes=_told(attributes))
    began.end(now)


def _remote(parent: str) -> Any:
    if not parent:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent})


def _told(attributes: Mapping[str, str | float | None]) -> dict[str, str | float]:
    return {f"openrl.{name}": value for name, value in attributes.items() if value is not None}
