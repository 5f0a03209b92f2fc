"""One op's trace, from its request through the bell to the engine."""

import json
import logging
from typing import Any

import httpx
import pytest

from openrl.domain.ids import OpId
from openrl.gateway.doubles import toy_gateway
from openrl.telemetry import traces
from openrl.telemetry.logs import JsonLines
from queues.bell import ringer, trace_of
from workers import desk
from workers.keeper import Keeper

pytest.importorskip("opentelemetry.sdk")

CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with traces.recording(provider):
        yield exporter.get_finished_spans
    provider.shutdown()


class Celery:
    """Messages as they are sent, and as tasks get them."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send_task(self, task: str, **options: Any) -> None:
        self.sent.append(options)

    def request_of(self, number: int) -> Any:
        headers = self.sent[number]["headers"]
        return type("Task", (), {"request": type("Context", (), {"headers": headers})})


def test_one_trace_goes_from_the_request_through_the_bell_to_the_engine(tmp_path, spans):
    celery = Celery()
    with toy_gateway(tmp_path) as up:
        rung: list[Any] = []
        up.worker.hears = lambda bell: bool(rung.append(bell))
        asked = {"key": "a-key-0001", "reward": "length", "texts": ["a"]}
        headers = {"x-api-key": up.key, "traceparent": CLIENTS}
        op = httpx.post(f"{up.url}/openrl/v1/score", json=asked, headers=headers).json()["op_id"]
        ringer(celery)(rung[0])  # type: ignore[arg-type]
        ledger = up.services.ledger

        def work(held: Any) -> Any:
            with traces.span("grade"):
                return None

        work.abort = work.drain = lambda *_: None  # type: ignore[attr-defined]
        desk.serve(ledger, Keeper(ledger), work, OpId(op), trace_of(celery.request_of(0)))  # type: ignore[arg-type]
    found = {span.name: span for span in spans()}
    request, served, grade = found["POST /openrl/v1/score"], found["score_texts"], found["grade"]
    assert {f"{each.context.trace_id:032x}" for each in (request, served, grade)} == {CLIENTS.split("-")[1]}
    assert [f"{request.parent.span_id:016x}", served.parent.span_id, grade.parent.span_id] == [
        CLIENTS.split("-")[2],
        request.context.span_id,
        served.context.span_id,
    ]
    assert served.attributes["openrl.op"] == op
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/openrl/v1/score",
        "http.response.status_code": 200,
    }


def test_a_bell_of_nobodys_trace_has_no_header(tmp_path):
    celery = Celery()
    with toy_gateway(tmp_path) as up:
        rung: list[Any] = []
        up.worker.hears = lambda bell: bool(rung.append(bell))
        asked = {"key": "a-key-0001", "reward": "length", "texts": ["a"]}
        httpx.post(f"{up.url}/openrl/v1/score", json=asked, headers={"x-api-key": up.key})
        ringer(celery)(rung[0])  # type: ignore[arg-type]
    assert celery.sent[0]["headers"] is None and trace_of(celery.request_of(0)) == ""


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


def test_records_of_a_request_name_its_tenant_and_op(tmp_path, monkeypatch):
    lines, logger = Lines(), logging.getLogger("tests.inside")
    logger.addHandler(lines)
    with toy_gateway(tmp_path) as up:
        append = up.services.ledger.append
        monkeypatch.setattr(
            type(up.services.ledger), "append", lambda self, op, bell: logger.warning("here") or append(op, bell)
        )
        asked = {"key": "a-key-0001", "reward": "length", "texts": ["a"]}
        op = httpx.post(f"{up.url}/openrl/v1/score", json=asked, headers={"x-api-key": up.key}).json()["op_id"]
        tenant = up.services.ledger.read(OpId(op)).tenant
    logger.removeHandler(lines)
    assert [(line["op"], line["tenant"], line["run"]) for line in lines.lines] == [(op, tenant, None)]
