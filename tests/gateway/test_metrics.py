import asyncio
import time
from threading import Thread

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from openrl.cli.ports import free_port
from openrl.config import Gateway, Metrics
from openrl.domain.errors import LedgerUnreachable
from openrl.gateway.app import why_stuck
from openrl.gateway.doubles import toy_gateway
from openrl.ledger.port import Brings
from queues.lanes import REWARD_LINE


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    wanted = Gateway(poll_seconds=0.5, awaited_models=("awaited",))
    with toy_gateway(tmp_path_factory.mktemp("gateway"), gateway=wanted, metrics=Metrics(port=free_port())) as up:
        yield up


def page(gateway, name):
    return httpx.get(f"http://127.0.0.1:{gateway.services.settings.metrics.port}/{name}")


def values(gateway):
    """By name and labels, these in the order of their names."""
    answer = page(gateway, "metrics")
    assert answer.status_code == 200
    samples = (sample for family in text_string_to_metric_families(answer.text) for sample in family.samples)
    return {(sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in samples}


def test_requests_are_counted_by_route_and_status(gateway, http):
    http.call("retrieve_future", request_id="never")
    httpx.get(f"{gateway.url}/api/v1/samplers/secret-id")  # no key
    http.get("samplers/secret-id")
    httpx.request("PROPFIND", f"{gateway.url}/nowhere/tml-guess", headers={"x-api-key": gateway.key})
    found = values(gateway)
    counted = {name[1:]: value for name, value in found.items() if name[0] == "openrl_http_requests_total"}
    assert counted[("POST", "/api/v1/retrieve_future", "404")] == 1
    assert counted[("GET", "/api/v1/samplers/{sampler}", "404")] == 1
    assert counted[("GET", "none", "401")] == 1, "the key is looked at before the route"
    assert counted[("other", "none", "404")] == 1
    assert found["openrl_http_request_seconds_count", "POST", "/api/v1/retrieve_future"] == 1
    assert found["process_resident_memory_bytes",] > 0


def test_polls_that_are_held_open_are_told(gateway, http):
    gateway.worker.hears = lambda bell: False
    op = http.sample(http.sampler()).json()["request_id"]
    poll = Thread(target=http.call, args=("retrieve_future",), kwargs={"request_id": op})
    poll.start()
    while values(gateway)["openrl_http_polls",] != 1:
        assert poll.is_alive()
    poll.join()
    assert values(gateway)["openrl_http_polls",] == 0


def test_queues_are_told_by_kind_and_model_for_all_tenants(gateway, http, stranger):
    gateway.worker.hears = lambda bell: False
    gateway.services.ledger.stay("", Brings(line=REWARD_LINE, slots=4))
    base = {"base_url": f"{gateway.url}/openrl/v1"}
    ops = []
    for caller in (http, stranger):
        with httpx.Client(**base, headers=caller.headers) as client:
            for number in range(2):
                asked = {"key": f"a-key-{number:04}", "reward": "length", "texts": ["a"]}
                ops.append(client.post("score", json=asked).json()["op_id"])
    gateway.services.ledger.claim(ops[0])
    gateway.services._queues._kept.clear()
    time.sleep(0.01)
    found = values(gateway)
    counts = [found[f"openrl_queue_{name}", "", "reward"] for name in ("waiting", "held", "demand", "slots")]
    assert counts == [3, 1, 4, 4]
    assert found["openrl_queue_oldest_seconds", "", "reward"] > 0
    assert found["openrl_queue_workers", "toy", "train"] == 1 == found["openrl_queue_slots", "toy", "train"]
    assert found["openrl_queue_workers", "awaited", "sample"] == 0 == found["openrl_queue_demand", "awaited", "train"]
    assert found["openrl_queues_known",] == 1
    assert not [name for name in found if "tests" in name or "others" in name], "no tenant is named"


def test_queues_that_cannot_be_counted_are_not_told_as_empty(gateway, monkeypatch):
    def unreachable():
        raise LedgerUnreachable("gone")

    monkeypatch.setattr(gateway.services.ledger, "queues", unreachable)
    gateway.services._queues._kept.clear()
    found = values(gateway)
    assert found["openrl_queues_known",] == 0
    assert not [name for name in found if name[0].startswith("openrl_queue_")]


def test_it_is_ready_while_ledger_and_catalog_answer(gateway, monkeypatch):
    assert page(gateway, "readyz").status_code == 200 == page(gateway, "healthz").status_code

    def unreachable():
        raise LedgerUnreachable("gone")

    monkeypatch.setattr(gateway.services.roster, "workers", unreachable)
    assert page(gateway, "readyz").status_code == 503 and "gone" in page(gateway, "readyz").text
    assert page(gateway, "healthz").status_code == 200, "a restart would not help"


def test_a_catalog_that_does_not_answer_makes_it_unready(gateway, monkeypatch):
    from openrl.domain.errors import CatalogUnreachable

    def unreachable():
        raise CatalogUnreachable("sqlite://", "gone")

    monkeypatch.setattr(gateway.services.catalog, "ping", unreachable)
    assert page(gateway, "readyz").status_code == 503


def test_an_event_loop_that_does_not_come_round_is_stuck():
    loop = asyncio.new_event_loop()
    assert "has not come round" in why_stuck(loop, 0.01)
    thread = Thread(target=loop.run_forever)
    thread.start()
    assert why_stuck(loop, 5.0) == ""
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
