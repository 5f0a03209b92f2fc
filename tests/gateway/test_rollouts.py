import json
import threading
from dataclasses import replace
from itertools import count

import httpx
import pytest

from openrl.config import Gateway
from openrl.domain.errors import AdapterUnsupported, LedgerUnreachable, OpCancelled
from openrl.domain.ids import WorkerId
from openrl.domain.op import RewardOp, SampleOp
from openrl.domain.worker import Role
from openrl.gateway import batches, streams
from openrl.gateway.doubles import toy_gateway
from openrl.gateway.routes.rollouts import router
from openrl.ledger.port import Limits

NUMBERS = count()


class Caller(httpx.Client):
    def __init__(self, gateway, key):
        super().__init__(base_url=f"{gateway.url}{router.prefix}", headers={"x-api-key": key}, timeout=20)

    def create(self, count=3, **fields):
        request = {
            "key": f"a-key-{next(NUMBERS):04}",
            "policy": {"base_model": "toy"},
            "prompts": [{"tokens": [number + 1], "id": f"p{number}"} for number in range(count)],
            "group_size": 2,
            "sampling": {"max_tokens": 3},
            "rewards": "length",
        }
        return self.post("rollouts", json=request | fields)

    def batch(self, count=3, **fields):
        response = self.create(count, **fields)
        assert response.status_code == 200, response.text
        return response.json()["batch_id"]

    def state(self, batch):
        return self.get(f"rollouts/{batch}").json()

    def events(self, batch, most=None, **how):
        """(id, event, data) of each, to the end or so many."""
        with self.stream("GET", f"rollouts/{batch}/events", **how) as response:
            assert response.status_code == 200, response.read()
            told, event = [], {}
            for line in response.iter_lines():
                if line.startswith(":"):
                    continue
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                    continue
                told += [(event.get("id"), event["event"], json.loads(event["data"]))] if event else []
                event = {}
                if len(told) == most:
                    break
            return told


@pytest.fixture
def own(gateway):
    gateway.worker.before = lambda op: None
    with Caller(gateway, gateway.key) as caller:
        yield caller


def indexes(told):
    return [data["index"] for _, event, data in told if event == "group"]


def test_every_group_is_told_once_and_then_the_end(own):
    batch = own.batch(3, rewards=[{"name": "length", "weight": 0.5}, "again"])
    told = own.events(batch)
    assert sorted(indexes(told)) == [0, 1, 2] and [event for _, event, _ in told][3:] == ["end"]
    assert [at for at, *_ in told] == ["1", "2", "3", "3"]
    group = next(data for _, event, data in told if event == "group" and data["index"] == 1)
    assert (group["id"], group["prompt_tokens"], group["dropped"], group["policy"]) == ("p1", [2], [], "toy")
    assert group["rollouts"][1] == {
        "sample": 1,
        "tokens": [4, 5, 6],
        "logprobs": [-0.5, -0.6, -0.7],
        "text": "4 5 6",
        "stop_reason": "length",
        "reward": 7.5,
        "parts": {"length": 5.0, "again": 5.0},
        "info": {},
    }
    assert set(group["timings"]) == {"queued_seconds", "sampled_seconds", "scored_seconds"}


def test_the_state_adds_up(own):
    batch = own.batch(2, prompts=[{"tokens": [1]}, {"tokens": [97]}])
    own.events(batch)
    state = own.state(batch)
    assert state["created_at"].startswith("20") and state["queue"] == {}
    assert {key: state[key] for key in ("batch_id", "status", "groups", "groups_done", "group_size")} == {
        "batch_id": batch,
        "status": "done",
        "groups": 2,
        "groups_done": 2,
        "group_size": 2,
    }
    assert state["rollouts"] == {"asked": 4, "done": 4, "dropped": 0} and state["dropped_by_reason"] == {}
    assert state["policy"] == {"name": "toy", "base_model": "toy"}
    lengths = [len("2 3 4"), len("3 4 5"), len("98 99 0"), len("99 0 1")]
    mean = sum(lengths) / 4
    assert state["reward"]["std"] == pytest.approx((sum((each - mean) ** 2 for each in lengths) / 4) ** 0.5)
    del state["reward"]["std"]
    assert state["reward"] == {"mean": mean, "min": 5.0, "max": 7.0, "parts": {"length": mean}}


def test_texts_and_messages_are_prompts_too(own):
    prompts = [{"text": "AB"}, {"messages": [{"role": "user", "content": "C"}], "context": {"answer": 7}}]
    told = own.events(own.batch(prompts=prompts))
    assert {data["index"]: data["prompt_tokens"] for _, event, data in told if event == "group"} == {
        0: [65, 66],
        1: [67],
    }


def test_a_context_travels_as_text(own, gateway):
    seen = []
    gateway.worker.before = lambda op: seen.append(op) if isinstance(op, RewardOp) else None
    own.events(own.batch(prompts=[{"text": "A", "context": {"answer": 7, "of": [1]}}], group_size=1))
    assert [op.action.context for op in seen] == [{"answer": "7", "of": "[1]"}]


def test_a_stream_goes_on_where_it_was_cut(own):
    batch = own.batch(5)
    first = own.events(batch, most=2)
    rest = own.events(batch, headers={"last-event-id": first[-1][0]})
    assert sorted(indexes(first) + indexes(rest)) == [0, 1, 2, 3, 4]
    again = own.events(batch, params={"after": 2})
    assert again == rest and own.events(batch, params={"after": 5})[0][1] == "end"


def test_groups_come_as_they_finish(own, gateway):
    hold = threading.Event()
    gateway.worker.before = lambda op: op.id.endswith("1.reward") and hold.wait(20)
    batch = own.batch(2)
    reader = threading.Thread(target=lambda: told.extend(own.events(batch)))
    told = own.events(batch, most=1)
    assert indexes(told) == [0] and own.state(batch)["status"] == "running"
    told.clear()
    reader.start()
    hold.set()
    reader.join(10)
    assert sorted(indexes(told)) == [0, 1]


def test_a_silent_stream_is_kept_alive(own, gateway, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.05)
    hold = threading.Event()
    gateway.worker.before = lambda op: hold.wait(20)
    batch = own.batch(1)
    with own.stream("GET", f"rollouts/{batch}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert next(response.iter_lines()) == ": keep-alive"
    hold.set()


def test_a_resend_is_the_same_batch(own, gateway):
    fields = {"key": "the-same-key"}
    first, second = own.batch(**fields), own.batch(**fields)
    assert first == second and len(indexes(own.events(first))) == 3
    other = own.create(count=2, **fields)
    assert other.status_code == 422 and other.json()["detail"].startswith("key: was used for another request")


def test_a_resend_completes_what_a_dead_gateway_left(own, gateway, monkeypatch):
    ledger = gateway.services.ledger
    whole = ledger.append_all

    def die(ops):
        for number, (op, bell) in enumerate(ops):
            if number == 3:
                raise LedgerUnreachable("the gateway is cut off")
            ledger.append(op, bell)

    monkeypatch.setattr(ledger, "append_all", die)
    fields = {"key": "a-key-that-died"}
    assert own.create(4, **fields).status_code == 429
    monkeypatch.setattr(ledger, "append_all", whole)
    batch = own.batch(4, **fields)
    assert sorted(indexes(own.events(batch))) == [0, 1, 2, 3]
    assert ledger.waiting(gateway.services.tenant(gateway.key)) == 0


def test_another_tenant_sees_nothing(own, gateway):
    batch = own.batch()
    with Caller(gateway, gateway.other_key) as stranger:
        assert stranger.get(f"rollouts/{batch}").status_code == 404
        assert stranger.get(f"rollouts/{batch}/events").status_code == 404
        assert stranger.post(f"rollouts/{batch}/cancel").status_code == 404
        assert stranger.batch(key="the-same-key-again") != own.batch(key="the-same-key-again")
    assert own.get("rollouts/never").json()["detail"].startswith("batch_id: no batch of rollouts 'never'")


def test_a_batch_is_called_off(own, gateway):
    hold = threading.Event()
    gateway.worker.before = lambda op: isinstance(op, RewardOp) and not op.id.endswith("0.reward") and hold.wait(20)
    batch = own.batch(4)
    assert indexes(own.events(batch, most=1)) == [0]
    state = own.post(f"rollouts/{batch}/cancel").json()
    hold.set()
    assert state["status"] == "cancelled" and state["rollouts"] == {"asked": 8, "done": 2, "dropped": 6}
    assert state["dropped_by_reason"] == {"OpCancelled": 6}
    told = own.events(batch)
    assert sorted(indexes(told)) == [0, 1, 2, 3] and told[-1][2]["status"] == "cancelled"
    assert told[1][2]["dropped"] == [
        {"sample": sample, "error": "OpCancelled", "reason": str(OpCancelled())} for sample in range(2)
    ]
    assert own.post(f"rollouts/{batch}/cancel").json()["status"] == "cancelled"
    assert own.state(own.batch(4))["status"] in ("running", "done")


@pytest.mark.parametrize("away", [False, True])
def test_a_large_batch_is_called_off_behind_its_callers_back(own, gateway, monkeypatch, away):
    """And by the sweeps where the ledger was away for a moment."""
    monkeypatch.setattr(batches, "CALLING_OFF_SECONDS", 0.0)
    calls, answered, ended, hold = count(), threading.Event(), threading.Event(), threading.Event()
    real = gateway.services.ledger.call_off

    def call_off(batch):
        if next(calls) == 0:
            return real(batch)
        assert answered.wait(20)
        ended.set()
        if away:
            raise LedgerUnreachable("away")
        return real(batch)

    monkeypatch.setattr(gateway.services.ledger, "call_off", call_off)
    gateway.worker.before = lambda op: hold.wait(20)
    batch = own.batch(prompts=[{"tokens": [number % 9 + 1]} for number in range(120)])
    state = own.post(f"rollouts/{batch}/cancel").json()
    assert state["status"] == "cancelled" and state["groups_done"] == 50
    answered.set()
    assert ended.wait(20)
    if away:
        for _ in range(2):
            gateway.services.ledger.sweep()
    hold.set()
    told = own.events(batch)
    assert sorted(indexes(told)) == list(range(120))
    assert told[-1][2]["rollouts"] == {"asked": 240, "done": 0, "dropped": 240}


def test_a_group_that_cannot_be_sampled_is_dropped_and_counted(own, gateway):
    def fail(op):
        if op.id.endswith("1.sample"):
            raise AdapterUnsupported("adapter.bin", "is broken")

    gateway.worker.before = fail
    batch = own.batch(3)
    told = own.events(batch)
    bad = next(data for _, _, data in told if data.get("index") == 1)
    assert bad["rollouts"] == [] and bad["prompt_tokens"] == [] and bad["id"] == "p1"
    assert bad["dropped"][0] == {
        "sample": 0,
        "error": "AdapterUnsupported",
        "reason": "adapter adapter.bin: is broken",
    }
    state = told[-1][2]
    assert state["status"] == "done" and state["dropped_by_reason"] == {"AdapterUnsupported": 2}


def test_a_group_whose_scoring_breaks_is_dropped_and_never_zero(own, gateway):
    def fail(op):
        if op.id.endswith("0.reward"):
            raise ZeroDivisionError("in a reward worker")

    gateway.worker.before = fail
    told = own.events(own.batch(2))
    bad = next(data for _, _, data in told if data.get("index") == 0)
    assert bad["rollouts"] == [] and bad["prompt_tokens"] == [1]
    assert {each["error"] for each in bad["dropped"]} == {"ZeroDivisionError"}
    assert told[-1][2]["rollouts"] == {"asked": 4, "done": 2, "dropped": 2}


def test_a_batch_may_fail_with_its_first_loss(own, gateway):
    hold = threading.Event()

    def before(op):
        if op.id.endswith("0.sample"):
            raise AdapterUnsupported("adapter.bin", "is broken")
        if op.id.endswith("2.reward"):
            hold.wait(20)

    gateway.worker.before = before
    batch = own.batch(4, on_failure="fail")
    assert own.events(batch, most=1)[0][2]["dropped"]
    assert own.state(batch)["status"] == "failed"
    hold.set()
    told = own.events(batch)
    assert told[-1][2]["status"] == "failed" and len(indexes(told)) == 4
    assert told[-1][2]["dropped_by_reason"]["OpCancelled"] == 4


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(tmp_path):
    with toy_gateway(tmp_path, limits=Limits(max_waiting_per_tenant=10)) as up, Caller(up, up.key) as caller:
        hold = threading.Event()
        up.worker.before = lambda op: hold.wait(20)
        batch = caller.batch(3)
        response = caller.create(4, key="a-large-batch")
        assert response.status_code == 429 and response.headers["retry-after"]
        assert response.json()["detail"].startswith("6 requests are waiting already and this would add 8")
        assert up.services.ledger.waiting(up.services.tenant(up.key)) == 6
        hold.set()
        assert len(indexes(caller.events(batch))) == 3
        assert len(indexes(caller.events(caller.batch(5, key="a-large-batch")))) == 5


def test_a_batch_that_never_fits_is_told_what_would(tmp_path):
    with toy_gateway(tmp_path, limits=Limits(max_waiting_per_tenant=11)) as up, Caller(up, up.key) as caller:
        response = caller.create(6)
        assert response.status_code == 422 and "retry-after" not in response.headers
        told = "prompts: 6 of them are 12 requests, and at most 11 of a tenant may wait; send at most 5 prompts at once"
        assert response.json()["detail"].startswith(told)
        assert up.services.ledger.waiting(up.services.tenant(up.key)) == 0 and not up.worker.seen


@pytest.mark.parametrize(
    ("field", "name", "detail"),
    [
        ("path", "tinker://nobody/sampler_weights/x", "no checkpoint 'tinker://nobody/sampler_weights/x'"),
        ("sampler", "nobody:sample:0", "no sampling session 'nobody:sample:0'"),
        ("run", "nobody:train:0", "no training run 'nobody:train:0'"),
    ],
)
def test_a_policy_that_is_not_there_is_named_by_its_field(own, field, name, detail):
    response = own.create(1, policy={field: name})
    assert (response.status_code, response.json()["detail"]) == (404, f"policy.{field}: {detail}")
    judge = {"policy": {field: name}, "text": "{{completion}}", "sampling": {"max_tokens": 2}}
    response = own.create(1, rewards=["length", {"name": "judge", "params": judge}])
    assert (response.status_code, response.json()["detail"]) == (404, f"rewards[1].params.policy.{field}: {detail}")


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"policy": {}}, "policy: must have exactly one of"),
        ({"policy": {"base_model": "toy", "run": "r"}}, "policy: must have exactly one of"),
        ({"policy": {"base_model": "other"}}, "base_model: 'other' is not served here"),
        ({"policy": {"path": "x"}}, "policy.path: 'x' is not of the form"),
        ({"group_size": 0}, "group_size: must be greater than or equal to 1"),
        ({"sampling": {}}, "sampling.max_tokens: is missing"),
        ({"sampling": {"max_tokens": 100}}, "sampling.max_tokens: 100 after a prompt of 1"),
        ({"sampling": {"max_tokens": 1, "top_k": 0}}, "sampling.top_k: is 0"),
        ({"sampling": {"max_tokens": 1, "stop": [100]}}, "sampling.stop: token 100 is outside"),
        ({"sampling": {"max_tokens": 1, "nonsense": 1}}, "sampling.nonsense: is not a field"),
        ({"prompts": []}, "prompts: "),
        ({"prompts": [{"text": "a"}, {}]}, "prompts[1]: must have exactly one of"),
        ({"prompts": [{"text": ""}]}, "prompts[0].text: is empty"),
        ({"prompts": [{"messages": []}]}, "prompts[0].messages: is empty"),
        ({"prompts": [{"text": "a"}, {"messages": [{"role": "user"}]}]}, "prompts[1].messages[0].content: is missing"),
        ({"prompts": [{"tokens": [1, 100]}]}, "prompts[0].tokens: token 100 at position 1"),
        ({"prompts": [{"tokens": [1] * 62}]}, "sampling.max_tokens: 3 after a prompt of 62"),
        ({"prompts": [{"tokens": [1] * 64}]}, "prompts[0].tokens: 64 tokens leave no room"),
        ({"prompts": [{"tokens": [1] * 65}]}, "prompts[0].tokens: 65 tokens are more"),
        ({"prompts": [{"text": "a", "context": []}]}, "prompts[0].context: "),
        ({"rewards": []}, "rewards: "),
        ({"rewards": 7}, "rewards: must be a name"),
        ({"rewards": [{"weight": 1}]}, "rewards[0].name: is missing"),
        ({"rewards": ["a", {"name": "a"}]}, "rewards[1].name: 'a' is named twice"),
        ({"rewards": [{"name": "a", "weight": "x"}]}, "rewards[0].weight: "),
        ({"on_failure": "ignore"}, "on_failure: "),
        ({"group_size": 1000, "prompts": [{"text": "a"}] * 201}, "group_size: 201 prompts of 1000"),
        ({"key": "short"}, "key: "),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_queued(own, gateway, fields, detail):
    before = len(gateway.worker.seen)
    response = own.create(**fields)
    assert response.status_code == 422 and response.json()["detail"].startswith(detail), response.text
    assert len(gateway.worker.seen) == before


def test_half_a_character_is_refused(own):
    body = b'{"key": "12345678", "policy": {"base_model": "toy"}, "prompts": [{"text": "\\ud800"}], "group_size": 1,'
    body += b'"sampling": {"max_tokens": 1}, "rewards": "length"}'
    assert own.post("rollouts", content=body).status_code in (400, 422)


def test_a_policy_is_a_checkpoint_a_sampler_or_a_runs_newest_version(own, http, gateway):
    run = http.run()
    missing = own.create(policy={"run": run})
    assert missing.status_code == 422 and "call save_weights_for_sampler" in missing.json()["detail"]
    paths = []
    for turn, name in enumerate(("first", "second"), start=1):
        saved = http.done("save_weights_for_sampler", model_id=run, seq_id=turn, path=name)
        paths.append(http.result(saved["request_id"])["path"])
    sampler = http.sampler(model_path=paths[0])
    names = {}
    for choice in ({"run": run}, {"path": paths[0]}, {"sampler": sampler}):
        told = own.events(own.batch(1, policy=choice))
        names[next(iter(choice))] = told[0][2]["policy"]
    assert names == {"run": paths[1], "path": paths[0], "sampler": paths[0]}
    sampled = [op.action.policy for op in gateway.worker.seen if isinstance(op, SampleOp)]
    assert len(set(sampled[-3:])) == 2 and None not in sampled[-3:]


def test_a_policy_stays_while_a_batch_needs_it_and_is_refused_once_it_is_gone(own, http, gateway):
    run, hold = http.run(), threading.Event()
    saved = http.done("save_weights_for_sampler", model_id=run, seq_id=1, sampling_session_seq_id=5)
    sampler = http.result(saved["request_id"])["sampling_session_id"]
    gateway.worker.before = lambda op: hold.wait(20)
    batch = own.batch(1, policy={"sampler": sampler})
    policy = gateway.services.sampler(gateway.services.tenant(gateway.key), sampler).policy
    assert not gateway.services.ledger.retire(policy, 0.0)
    hold.set()
    assert len(indexes(own.events(batch))) == 1
    assert gateway.services.ledger.retire(policy, 0.0)
    response = own.create(1, policy={"sampler": sampler})
    assert response.status_code == 422 and response.json()["detail"].startswith("policy: the weights of ")


def test_a_batchs_newest_version_stays_the_one_it_began_with(own, http, gateway, monkeypatch):
    run = http.run()
    saved = http.done("save_weights_for_sampler", model_id=run, seq_id=1, path="first")
    path = http.result(saved["request_id"])["path"]

    def cut_off(ops):
        raise LedgerUnreachable("the gateway is cut off")

    ledger = gateway.services.ledger
    whole = ledger.append_all
    monkeypatch.setattr(ledger, "append_all", cut_off)
    assert own.create(policy={"run": run}, key="an-early-key").status_code == 429
    monkeypatch.setattr(ledger, "append_all", whole)
    saved = http.done("save_weights_for_sampler", model_id=run, seq_id=2, path="second")
    http.result(saved["request_id"])
    told = own.events(own.batch(policy={"run": run}, key="an-early-key"))
    assert {data["policy"] for _, event, data in told if event == "group"} == {path}


def test_a_waiting_batch_tells_why(tmp_path):
    with toy_gateway(tmp_path, gateway=Gateway(awaited_models=("awaited",))) as up, Caller(up, up.key) as caller:
        up.worker.hears = lambda bell: False
        state = caller.state(caller.batch(policy={"base_model": "awaited"}))
        assert state["queue"]["reason"] == "no worker serves awaited at the moment; waiting for one"


def test_ops_of_a_batch_are_not_the_sdks(own, http):
    batch = own.batch(1)
    own.events(batch)
    response = http.call("retrieve_future", request_id=f"{batch}.0.sample")
    assert response.status_code == 422 and "belongs to a batch of rollouts" in response.json()["detail"]


def test_a_wrong_place_in_the_stream_is_refused(own):
    batch = own.batch(1)
    for unknown in ("x", "9" * 5000, "4611686018427387904"):
        assert own.get(f"rollouts/{batch}/events", headers={"last-event-id": unknown}).status_code == 422
    assert own.get(f"rollouts/{batch}/events", params={"after": -1}).status_code == 422


@pytest.mark.parametrize(
    "said", [{"text": "a" * 20_000}, {"messages": [{"role": "user", "content": "a" * 10_000}] * 2}]
)
def test_a_text_far_beyond_the_context_is_refused_before_any_worker_reads_it(own, said):
    response = own.create(prompts=[{"text": "a"}, said])
    assert response.status_code == 422 and "20000 characters are more than" in response.json()["detail"]
    assert response.json()["detail"].startswith(f"prompts[1].{next(iter(said))}: ")


def test_a_batch_that_expires_while_it_is_read_says_so(own, gateway, monkeypatch):
    batch = own.batch(1)
    own.events(batch)
    monkeypatch.setattr(gateway.services.ledger, "read", lambda op_id: None)
    (told,) = own.events(batch)
    assert told[1] == "error" and batch in told[2]["detail"]


def test_a_reward_function_that_no_worker_has_is_refused_before_anything_is_sampled(tmp_path):
    with toy_gateway(tmp_path) as up, Caller(up, up.key) as caller:
        roster = up.services.roster
        roster.announce(
            replace(roster.workers()[0], id=WorkerId("zz"), role=Role.REWARD, cards=(), rewards=("exact", "length")),
            60.0,
        )
        response = caller.create(rewards=["length", "lenght"])
        assert response.status_code == 422
        assert response.json()["detail"] == (
            "rewards[1].name: no reward worker has a function 'lenght'; there are: exact, length"
        )
        assert len(indexes(caller.events(caller.batch()))) == 3
