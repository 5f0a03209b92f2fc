import httpx
import pytest

from openrl.gateway.routes.scores import router


@pytest.fixture
def own(gateway):
    with httpx.Client(base_url=f"{gateway.url}{router.prefix}", headers={"x-api-key": gateway.key}) as client:
        yield client


def test_texts_are_scored_once_for_each_key(own, gateway):
    request = {"key": "a-key-of-my-own", "reward": "length", "texts": ["a", "bcd"]}
    ops = {own.post("score", json=request).json()["op_id"] for _ in range(3)}
    assert len(ops) == 1
    op = own.get(f"ops/{ops.pop()}", params={"wait_seconds": 5}).json()
    assert (op["status"], op["result"]) == ("done", {"values": [1.0, 3.0], "info": [], "parts": []})


def test_another_tenants_key_is_another_op(own, gateway):
    request = {"key": "a-key-of-my-own", "reward": "length", "texts": ["a"]}
    mine = own.post("score", json=request).json()["op_id"]
    headers = {"x-api-key": gateway.other_key}
    theirs = own.post("score", json=request, headers=headers).json()["op_id"]
    assert mine != theirs
    assert own.get(f"ops/{mine}", headers=headers).status_code == 404


def test_a_failure_is_told(own, gateway):
    def fail(op):
        raise ZeroDivisionError("in the reward function")

    gateway.worker.before = fail
    op_id = own.post("score", json={"key": "another-key", "reward": "x", "texts": ["a"]}).json()["op_id"]
    op = own.get(f"ops/{op_id}", params={"wait_seconds": 5}).json()
    gateway.worker.before = lambda op: None
    assert op["status"] == "failed"
    assert op["error"] == {
        "error": "ZeroDivisionError",
        "message": "internal error (ZeroDivisionError): in the reward function",
        "category": "server",
    }


def test_a_wrong_request_is_refused(own):
    response = own.post("score", json={"key": "another-key", "reward": "x", "texts": []})
    assert response.status_code == 422
    assert own.get("ops/nothing").status_code == 404
    assert own.get("ops/nothing", params={"wait_seconds": 100}).status_code == 422
