"""One op's trace through real processes: from its request through the bell to the engine, as a receiver gets it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import tinker
from living import Server, wait_for
from loops import train

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """Its address, and the spans that came."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", spans
    server.shutdown()


def test_an_op_is_one_trace_from_its_request_to_the_engine(tmp_path: Path) -> None:
    with receiver() as (url, spans):
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        server = Server.start(tmp_path, "--no-flower", **settings)
        try:
            service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
            client = service.create_lora_training_client(base_model="tiny", rank=4).result()
            train(client, steps=1)
            sampler = service.create_sampling_client(base_model="tiny").result()
            sampler.sample(tinker.ModelInput.from_ints([1]), 1, tinker.SamplingParams(max_tokens=2)).result()
            for chain in (
                ("POST /api/v1/forward_backward", "forward_backward", "pack"),
                ("POST /api/v1/optim_step", "optim_step", "update"),
                ("POST /api/v1/asample", "sample", "draw"),
            ):
                wait_for(" > ".join(chain), lambda chain=chain: told(list(spans), *chain))
        finally:
            server.stop()


def told(spans: list[Any], *names: str) -> bool:
    """Whether there are spans of these names, each inside of the one before."""
    inside = {span.span_id for span in spans if span.name == names[0]}
    for name in names[1:]:
        inside = {span.span_id for span in spans if span.name == name and span.parent_span_id in inside}
    time.sleep(0.1)
    return bool(inside)
