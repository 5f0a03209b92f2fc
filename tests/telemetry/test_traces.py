import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openrl.telemetry import traces

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Iterator[Any]:
    """What was exported."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with traces.recording(provider):
        yield exporter.get_finished_spans
    provider.shutdown()


def test_without_a_receiver_nothing_of_it_is_imported() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from openrl.telemetry import traces\n"
        "with traces.exporting('x', {}), traces.span('a', op='b') as span:\n"
        "    assert span is None and traces.traceparent() == '' and traces.present() is None\n"
        "    traces.ended('c', None, 1.0)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_turn_traces_on(environment: dict[str, str], wanted: bool) -> None:
    assert traces.wanted(environment) is wanted


def test_a_trace_goes_on_where_its_traceparent_was_carried(spans: Any) -> None:
    with traces.span("request", PARENT, tenant=None, op="a"):
        carried = traces.traceparent()
    with traces.span("work", carried):
        pass
    request, work = spans()
    assert {f"{each.context.trace_id:032x}" for each in (request, work)} == {PARENT.split("-")[1]}
    assert f"{request.parent.span_id:016x}" == PARENT.split("-")[2]
    assert work.parent.span_id == request.context.span_id
    assert dict(request.attributes) == {"openrl.op": "a"}


def test_what_ended_in_another_thread_is_told_inside_of_the_span_it_was_asked_in(spans: Any) -> None:
    with traces.span("work"):
        where = traces.present()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(traces.ended, "pack", where, 0.25, batches=3).result()
    pack, work = spans()
    assert pack.parent.span_id == work.context.span_id
    assert (pack.end_time - pack.start_time) / 1e9 == pytest.approx(0.25)
    assert pack.attributes["openrl.batches"] == 3


def test_an_error_is_told_by_its_span(spans: Any) -> None:
    with pytest.raises(ZeroDivisionError), traces.span("work"):
        raise ZeroDivisionError
    (work,) = spans()
    assert not work.status.is_ok and work.events[0].name == "exception"
