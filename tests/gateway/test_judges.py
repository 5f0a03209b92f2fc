"""Batches of rollouts with a judge: who is asked what, in which order, and what becomes of failures."""

import threading

import httpx
import pytest

from openrl.domain.errors import AdapterUnsupported, LedgerUnreachable
from openrl.domain.ids import SamplerId
from openrl.domain.judge import AskJudge
from openrl.domain.op import RewardOp, SampleOp, Status
from openrl.domain.rollout import RollOut

REQUEST = {
    "policy": {"base_model": "toy"},
    "prompts": [{"text": "A", "id": "p0"}, {"text": "B", "id": "p1"}],
    "group_size": 2,
    "sampling": {"max_tokens": 3},
}
JUDGE = {"policy": {"base_model": "toy"}, "text": "{{prompt}}{{completion}}", "sampling": {"max_tokens": 2}}


@pytest.fixture
def own(gateway):
    gateway.worker.before = lambda op: None
    gateway.worker.seen.clear()
    with Caller(gateway, gateway.key) as caller:
        yield caller


class Caller(httpx.Client):
    def __init__(self, gateway, key):
        super().__init__(base_url=f"{gateway.url}/openrl/v1", headers={"x-api-key": key}, timeout=20)

    def create(self, key, params=JUDGE, **fields):
        rewards = [{"name": "length"}, {"name": "judge", "weight": 0.5, "params": params}]
        return self.post("rollouts", json=REQUEST | {"key": key, "rewards": rewards} | fields)

    def batch(self, key, params=JUDGE, **fields):
        response = self.create(key, params, **fields)
        assert response.status_code == 200, response.text
        return response.json()["batch_id"]

    def end(self, batch):
        """The last event, once all is over."""
        with self.stream("GET", f"rollouts/{batch}/events") as response:
            return [line for line in response.iter_lines() if line.startswith("event:")]

    def state(self, batch):
        return self.get(f"rollouts/{batch}").json()


def waiting(gateway):
    return gateway.services.ledger.waiting(gateway.services.tenant(gateway.key))


def test_a_judge_is_asked_between_sample_and_reward(own, gateway):
    batch = own.batch("a-judge-is-asked", JUDGE | {"labels": {"yes": 1}})
    assert own.end(batch) == ["event: group", "event: group", "event: end"]
    kinds = [(op.id.split(".", 1)[1], type(op), type(op.action)) for op in gateway.worker.seen]
    assert kinds.index(("0.sample", SampleOp, RollOut)) < kinds.index(("0.judge", SampleOp, AskJudge))
    assert kinds.index(("0.judge", SampleOp, AskJudge)) < [kind[0] for kind in kinds].index("0.reward")
    assert len(kinds) == 6
    judge = next(op for op in gateway.worker.seen if op.id == f"{batch}.1.judge")
    assert (judge.action.text, judge.action.of, judge.sampler) == (("B", ""), f"{batch}.1.sample", f"{batch}.judge")
    reward = next(op for op in gateway.worker.seen if op.id == f"{batch}.1.reward")
    assert reward.after.ops == (f"{batch}.1.sample", judge.id)
    length, judged = reward.action.rewards
    assert (judged.answers, judged.params, judged.weight) == (judge.id, {"labels": '{"yes": 1}'}, 0.5)
    assert length.answers is None
    assert own.state(batch)["rollouts"] == {"asked": 4, "done": 4, "dropped": 0}
    assert waiting(gateway) == 0


def test_the_judge_may_be_any_policy_of_the_tenant(own, gateway, http, stranger):
    run = http.run()
    saved = http.done("save_weights_for_sampler", model_id=run, seq_id=1, path="judge")
    path = http.result(saved["request_id"])["path"]
    batch = own.batch("a-judge-of-ones-own", JUDGE | {"policy": {"path": path}})
    own.end(batch)
    judges = [op for op in gateway.worker.seen if isinstance(op.action, AskJudge)]
    assert len(judges) == 2 and all(op.action.policy is not None for op in judges)
    theirs = stranger.run()
    refused = [
        Caller(gateway, gateway.other_key).create("a-judge-of-others", JUDGE | {"policy": {"path": path}}),
        own.create("a-judge-of-a-run", JUDGE | {"policy": {"run": theirs}}),
        own.create("a-judge-not-there", JUDGE | {"policy": {"sampler": "never"}}),
    ]
    assert [response.status_code for response in refused] == [404] * 3
    unsaved = own.create("a-judge-unsaved", JUDGE | {"policy": {"run": http.run(number=1)}})
    assert unsaved.status_code == 422
    assert unsaved.json()["detail"].startswith("rewards[1].params.policy.run: ")


def test_wrong_parameters_are_refused_before_anything_is_sampled(own, gateway):
    response = own.create("a-wrong-judge", JUDGE | {"text": "?"})
    assert response.status_code == 422
    assert response.json()["detail"].startswith("rewards[1].params.text: has no {{completion}}")
    unknown = own.create("an-unknown-judge", JUDGE | {"policy": {"base_model": "nobody"}})
    assert unknown.status_code == 422 and "'nobody' is not served here" in unknown.json()["detail"]
    assert gateway.worker.seen == []


def test_weights_that_were_removed_are_the_judges_field(own, gateway, http):
    saved = http.done("save_weights_for_sampler", model_id=(run := http.run()), seq_id=1, path="old")
    path = http.result(saved["request_id"])["path"]
    checkpoint = next(op for op in gateway.worker.seen if getattr(op.action, "path", None) == path)
    gateway.services.ledger.retire(checkpoint.action.target, None)
    response = own.create("a-judge-removed", JUDGE | {"policy": {"path": path}})
    assert response.status_code == 422, run
    assert response.json()["detail"] == (
        f"rewards[1].params.policy: the weights of {path} were removed; name a checkpoint's path"
    )


def test_a_resend_completes_what_a_dead_gateway_left_with_the_same_judge(own, gateway, http, monkeypatch):
    run = http.run()
    http.result(http.done("save_weights_for_sampler", model_id=run, seq_id=1, path="one")["request_id"])
    ledger = gateway.services.ledger
    whole, before = ledger.append_all, waiting(gateway)

    def die(ops):
        for number, (op, bell) in enumerate(ops):
            if number == 2:
                raise LedgerUnreachable("the gateway is cut off")
            ledger.append(op, bell)

    monkeypatch.setattr(ledger, "append_all", die)
    assert own.create("a-judge-that-died", JUDGE | {"policy": {"run": run}}).status_code == 429
    monkeypatch.setattr(ledger, "append_all", whole)
    http.result(http.done("save_weights_for_sampler", model_id=run, seq_id=2, path="two")["request_id"])
    batch = own.batch("a-judge-that-died", JUDGE | {"policy": {"run": run}})
    assert len(own.end(batch)) == 3
    policies = {op.action.policy for op in gateway.worker.seen if isinstance(op.action, AskJudge)}
    assert len(policies) == 1, "the one that was newest at first"
    assert waiting(gateway) == before


def test_a_judge_is_not_asked_about_what_was_not_sampled(own, gateway):
    def fail(op):
        if op.id.endswith("0.sample"):
            raise AdapterUnsupported("adapter.bin", "is broken")

    gateway.worker.before = fail
    batch = own.batch("a-judge-for-nothing")
    own.end(batch)
    assert not any(op.id.endswith("0.judge") for op in gateway.worker.seen)
    assert gateway.services.ledger.read(f"{batch}.0.judge").failure.error == "MemberFailed"
    state = own.state(batch)
    assert state["status"] == "done" and state["dropped_by_reason"] == {"AdapterUnsupported": 2}


def test_a_judge_that_fails_lets_the_reward_tell_why(own, gateway):
    def fail(op):
        if op.id.endswith("0.judge"):
            raise AdapterUnsupported("adapter.bin", "is broken")

    gateway.worker.before = fail
    batch = own.batch("a-judge-that-fails")
    assert own.end(batch) == ["event: group", "event: group", "event: end"]
    assert any(op.id == f"{batch}.0.reward" for op in gateway.worker.seen if isinstance(op, RewardOp))


def test_a_batch_with_a_judge_is_called_off_whole(own, gateway):
    hold, before = threading.Event(), waiting(gateway)
    gateway.worker.before = lambda op: hold.wait(20) if isinstance(op.action, AskJudge) else None
    batch = own.batch("a-judge-called-off")
    while not any(isinstance(op.action, AskJudge) for op in gateway.worker.seen):
        pass
    own.post(f"rollouts/{batch}/cancel")
    state = own.state(batch)
    assert state["status"] == "cancelled" and state["rollouts"]["dropped"] == 4
    endings = [gateway.services.ledger.read(f"{batch}.{number}.judge").failure for number in range(2)]
    assert [failure.error for failure in endings] == ["OpCancelled"] * 2
    assert waiting(gateway) == before
    hold.set()


def test_a_batch_that_waits_for_its_judge_says_so(own, gateway):
    gateway.worker.hears = lambda bell: "judge" not in bell.op
    batch = own.batch("a-judge-is-away")
    ledger = gateway.services.ledger
    while ledger.read(f"{batch}.1.sample").status is not Status.DONE:
        pass
    assert own.state(batch)["queue"]["reason"] is None  # its model has workers
    gateway.worker.hears = lambda bell: True
    own.post(f"rollouts/{batch}/cancel")


def test_judges_take_turns_with_the_samples_of_their_batch(own, gateway):
    own.end(own.batch("a-judge-in-turn"))
    owners = {op.owner for op in gateway.worker.seen if isinstance(op, SampleOp)}
    assert len(owners) == 2 and SamplerId(f"{min(owners)}.judge") == max(owners)
