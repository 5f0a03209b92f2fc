import httpx
import pytest

from openrl.config import Gateway
from openrl.domain.outcome import Category, Failure
from openrl.gateway import services as services_module
from openrl.gateway.doubles import toy_gateway
from openrl.gateway.memo import Memo
from openrl.gateway.routes.queues import router
from openrl.ledger.port import Brings
from queues.lanes import REWARD_LINE, sample_line, train_queue


@pytest.fixture
def gateway(tmp_path):
    with toy_gateway(tmp_path, gateway=Gateway(poll_seconds=0.3, awaited_models=("awaited",))) as up:
        up.worker.hears = lambda bell: False
        yield up


def calling(gateway, key):
    return httpx.Client(base_url=f"{gateway.url}{router.prefix}", headers={"x-api-key": key}, timeout=20)


@pytest.fixture
def own(gateway):
    with calling(gateway, gateway.key) as client:
        yield client


def score(client, number):
    request = {"key": f"a-key-{number:04}", "reward": "length", "texts": ["a"]}
    return client.post("score", json=request).json()["op_id"]


def queues(client):
    return {queue["queue"]: queue for queue in client.get("queues").json()}


def test_every_queue_there_may_be_is_told(own):
    found = queues(own)
    assert set(found) == {f(model) for model in ("toy", "awaited") for f in (train_queue, sample_line)} | {REWARD_LINE}
    nothing = {"waiting": 0, "running": 0, "oldest_seconds": None, "seconds": None}
    assert found[train_queue("toy")] == {
        "queue": train_queue("toy"),
        "kind": "train",
        "model": "toy",
        "workers": 1,
        "slots": None,
        "waiting": 0,
        "running": 0,
        "own": nothing,
    }
    assert (found[sample_line("awaited")]["workers"], found[sample_line("toy")]["workers"]) == (0, 1)
    assert (found[REWARD_LINE]["kind"], found[REWARD_LINE]["workers"], found[REWARD_LINE]["slots"]) == ("reward", 0, 0)


def test_a_tenant_sees_depths_in_all_and_details_of_its_own_only(own, gateway):
    gateway.services.ledger.stay("", Brings(line=REWARD_LINE, slots=4))
    mine = [score(own, number) for number in range(3)]
    with calling(gateway, gateway.other_key) as other:
        for number in range(5):
            score(other, number)
    gateway.services.ledger.claim(mine[0])
    found = queues(own)[REWARD_LINE]
    assert (found["waiting"], found["running"], found["slots"]) == (7, 1, 4)
    assert (found["own"]["waiting"], found["own"]["running"]) == (2, 1)
    assert 0 <= found["own"]["oldest_seconds"] < 60 and found["own"]["seconds"] is None
    assert set(found) == {"queue", "kind", "model", "workers", "slots", "waiting", "running", "own"}


def test_the_ledger_is_not_asked_by_every_request(own, gateway, monkeypatch):
    asked = []
    real = gateway.services.ledger.queues
    monkeypatch.setattr(gateway.services.ledger, "queues", lambda: asked.append(1) or real())
    queues(own), queues(own)
    assert len(asked) == 1 and services_module.QUEUES_SECONDS <= 2.0
    assert isinstance(gateway.services._queues, Memo)


def life(client, op):
    return client.get(f"ops/{op}", params={"life": "true"})


def test_an_ops_life_is_told(own, gateway):
    ledger = gateway.services.ledger
    op = score(own, 0)
    told = life(own, op).json()
    assert (told["op_id"], told["kind"], told["status"], told["attempts"]) == (op, "score_texts", "waiting", 0)
    assert (told["worker"], told["claimed_at"], told["settled_at"], told["line"]) == (None, None, None, None)
    assert told["rung_again"] == 0 and told["queue"].startswith("reward.") and told["appended_at"].startswith("20")
    assert told["waits_because"] == "no reward worker is up; waiting for one"
    assert told["after"] == {"count": 0, "ops": []}
    held = ledger.claim(op)
    assert life(own, op).json()["worker"] == "here" and life(own, op).json()["claimed_at"]
    ledger.failed(held, Failure(error="E", message="m", category=Category.USER))
    over = life(own, op).json()
    assert (over["status"], over["queue"], over["waits_because"]) == ("failed", told["queue"], None)
    assert over["settled_at"] >= over["claimed_at"] >= over["rung_at"] >= over["appended_at"]
    assert over["rung_again"] == 0 and over["error"]["message"] == "m"
    assert over["age_seconds"] >= 0


def test_an_op_in_line_tells_its_place_and_one_that_waits_its_members(own, gateway):
    gateway.services.ledger.stay("", Brings(line=REWARD_LINE, slots=2))
    ops = [score(own, number) for number in range(4)]
    assert life(own, ops[3]).json()["line"] == {"name": REWARD_LINE, "ahead": 2, "seconds": None}
    assert life(own, ops[3]).json()["rung_again"] is None
    batch = own.post(
        "rollouts",
        json={
            "key": "a-key-of-a-batch",
            "policy": {"base_model": "toy"},
            "prompts": [{"text": "A"}],
            "group_size": 2,
            "sampling": {"max_tokens": 3},
            "rewards": "length",
        },
    ).json()["batch_id"]
    reward = life(own, f"{batch}.0.reward").json()
    assert reward["after"] == {"count": 1, "ops": [{"op_id": f"{batch}.0.sample", "status": "waiting"}]}


def test_another_tenants_op_is_not_there(own, gateway):
    op = score(own, 0)
    with calling(gateway, gateway.other_key) as other:
        assert life(other, op).status_code == 404 == life(other, "never").status_code
        assert life(other, op).json()["detail"] == f"request_id: no request {op!r}"
    assert "appended_at" not in own.get(f"ops/{op}").json()


def test_only_with_a_key(gateway):
    assert httpx.get(f"{gateway.url}{router.prefix}/queues").status_code == 401
