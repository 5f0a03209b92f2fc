import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from openrl.config import Metrics
from openrl.domain.errors import SettingInvalid
from openrl.telemetry.endpoint import Told, listening, telling

ANY_PORT = Metrics(port=0)


def told(registry: CollectorRegistry | None = None, sick: str = "", unready: str = "") -> Told:
    return Told(registry=registry or CollectorRegistry(), sick=lambda: sick, unready=lambda: unready)


def test_metrics_are_told_as_prometheus_reads_them() -> None:
    registry = CollectorRegistry()
    Counter("seen", "Of some kind", ("kind",), registry=registry).labels('a "b"\n').inc(3)
    with listening(ANY_PORT, told(registry)) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics?x=1")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    assert [(s.labels, s.value) for s in samples if s.name == "seen_total"] == [({"kind": 'a "b"\n'}, 3.0)]


def test_health_is_200_until_there_is_trouble_which_is_told() -> None:
    with listening(ANY_PORT, told(unready="no model yet")) as port:
        live, ready = (httpx.get(f"http://127.0.0.1:{port}/{page}") for page in ("healthz", "readyz"))
    assert (live.status_code, live.text) == (200, "ok\n")
    assert (ready.status_code, ready.text) == (503, "no model yet\n")


def test_other_pages_are_not_there() -> None:
    with listening(ANY_PORT, told()) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/healthz")
    assert (answer.status_code, answer.text) == (404, "there are /metrics, /healthz, /readyz\n")


def test_what_cannot_be_told_is_a_500_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Collector):
        def describe(self) -> list:
            return []

        def collect(self) -> list:
            raise ZeroDivisionError

    registry = CollectorRegistry()
    registry.register(Broken())
    with listening(ANY_PORT, told(registry)) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
    assert (answer.status_code, answer.text) == (500, "ZeroDivisionError; the log has more\n")


def test_nothing_listens_without_a_port() -> None:
    with telling(Metrics(), told()) as port:
        assert port == 0


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Metrics(port=taken.getsockname()[1])
        with pytest.raises(SettingInvalid, match="OPENRL_METRICS__PORT: cannot listen"), telling(settings, told()):
            pass


def test_the_port_is_free_again_afterwards() -> None:
    with listening(ANY_PORT, told()) as port:
        httpx.get(f"http://127.0.0.1:{port}/healthz")
    with telling(Metrics(port=port), told()) as again:
        assert again == port
