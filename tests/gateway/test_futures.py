import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx
import pytest

from openrl.domain.errors import BytesLost, DepotUnreachable, FieldInvalid, LedgerUnreachable


@pytest.fixture
def held_up(gateway):
    """The worker waits before each op until this is set."""
    go = Event()
    gateway.worker.before = lambda op: go.wait(10) and None
    yield go
    go.set()
    gateway.worker.before = lambda op: None


def test_a_poll_waits_and_is_answered_408_when_nothing_came(http, held_up):
    request_id = http.sample(http.sampler()).json()["request_id"]
    started = time.monotonic()
    response = http.call("retrieve_future", request_id=request_id)
    assert (response.status_code, response.json()) == (408, {"queue_state": "active"})
    assert 0.25 < time.monotonic() - started < 1.5


def test_a_poll_is_answered_as_soon_as_the_op_settles(http, held_up):
    request_id = http.sample(http.sampler()).json()["request_id"]
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(http.call, "retrieve_future", request_id=request_id)
        time.sleep(0.1)
        held_up.set()
        settled = time.monotonic()
        response = poll.result()
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-protobuf")
    assert time.monotonic() - settled < 0.15


def test_a_result_may_be_read_again(http):
    request_id = http.sample(http.sampler()).json()["request_id"]
    reads = [http.call("retrieve_future", request_id=request_id) for _ in range(3)]
    assert {(each.status_code, each.content) for each in reads} == {(200, reads[0].content)}


def test_a_client_that_hangs_up_is_waited_for_no_longer(gateway, http, held_up):
    request_id = http.sample(http.sampler()).json()["request_id"]
    with pytest.raises(httpx.ReadTimeout):
        http.post("retrieve_future", json={"request_id": request_id}, timeout=0.05)
    time.sleep(0.1)
    assert request_id not in gateway.services.notices._waiters.ops()


def test_a_failure_is_a_200_that_tells_whose_it_is(gateway, http):
    def fail(op):
        raise FieldInvalid("reward", "is wrong") if op.id == request_id else ValueError("a bug")

    gateway.worker.before = lambda op: fail(op)
    try:
        request_id = None
        answer = http.result(http.sample(http.sampler()).json()["request_id"])
    finally:
        gateway.worker.before = lambda op: None
    assert answer == {"error": "internal error (ValueError): a bug", "category": "server"}


def test_an_unknown_request_is_a_404(http):
    response = http.call("retrieve_future", request_id="nothing")
    assert (response.status_code, response.json()["detail"]) == (404, "request_id: no request 'nothing'")


def test_a_sample_can_be_called_off(http, held_up):
    first, second = (http.sample(sampler).json()["request_id"] for sampler in (http.sampler(), http.sampler()))
    assert http.call("cancel_future", request_id=second).status_code == 200
    assert http.call("cancel_future", request_id=second).status_code == 200
    assert http.result(second) == {"error": "the request was cancelled", "category": "user"}
    held_up.set()
    assert http.call("retrieve_future", request_id=first).status_code == 200


def test_a_turn_cannot_be_called_off(http):
    run = http.run()
    request_id = http.step(run, 1).json()["request_id"]
    refused = http.call("cancel_future", request_id=request_id)
    assert (refused.status_code, refused.json()["detail"][:26]) == (422, "request_id: is a optim_ste")


@pytest.mark.parametrize(
    ("error", "status"),
    [(LedgerUnreachable("x"), 429), (DepotUnreachable("u", "x"), 503), (BytesLost("results/1"), 200)],
)
def test_a_poll_in_an_outage_does_not_make_the_client_spin(gateway, http, monkeypatch, error, status):
    monkeypatch.setattr("openrl.gateway.routes.futures.CALM_SECONDS", 0.0)

    def read(self, op_id):
        raise error

    monkeypatch.setattr(type(gateway.services.ledger), "read", read)
    response = http.call("retrieve_future", request_id="x")
    assert response.status_code == status
    assert (status != 200) or response.json()["category"] == "server"
