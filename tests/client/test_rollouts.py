import asyncio
import threading
from types import SimpleNamespace

import httpx
import pytest

import openrl
from openrl.client import BatchFailed, RequestRefused
from openrl.domain.errors import AdapterUnsupported
from openrl.gateway.doubles import toy_gateway
from openrl.ledger.port import Limits

ASKED = {"group_size": 2, "sampling": {"max_tokens": 3}, "reward": "length"}


class Breaking(httpx.BaseTransport):
    """Event streams end after so many bytes each, the next one after the next number; then they are whole."""

    def __init__(self, *lengths):
        self.real, self.lengths, self.resumed = httpx.HTTPTransport(), list(lengths), []

    def handle_request(self, request):
        response = self.real.handle_request(request)
        if not request.url.path.endswith("/events"):
            return response
        self.resumed.append(request.headers.get("last-event-id"))
        if self.lengths:
            response.stream = Cut(response.stream, self.lengths.pop(0))
        return response

    def close(self):
        self.real.close()


class Cut(httpx.SyncByteStream):
    def __init__(self, stream, length):
        self.stream, self.length = stream, length

    def __iter__(self):
        for data in self.stream:
            yield data[: self.length]
            self.length -= len(data)
            if self.length <= 0:
                raise httpx.ReadError("cut")

    def close(self):
        self.stream.close()


def test_groups_come_with_all_that_training_needs(client):
    prompts = [openrl.Prompt([1], id="p0", context={"answer": 7}), openrl.Prompt([97])]
    batch = client.rollouts.create(prompts, "toy", **(ASKED | {"reward": [("length", 0.5), openrl.Reward("again")]}))
    first, second = batch.results()
    assert (first.index, first.id, first.prompt_tokens, first.policy, first.dropped) == (0, "p0", (1,), "toy", ())
    rollout = first.rollouts[1]
    assert (rollout.sample, rollout.tokens, rollout.text, rollout.stop_reason) == (1, (3 + 0, 4, 5), "3 4 5", "length")
    assert rollout.logprobs == pytest.approx((-0.4, -0.5, -0.6))
    assert (rollout.reward, rollout.parts, rollout.info) == (7.5, {"length": 5.0, "again": 5.0}, {})
    assert second.rewards == (1.5 * len("98 99 0"), 1.5 * len("99 0 1"))
    assert first.timings.sampled_seconds == 0.0


def test_every_kind_of_prompt_and_policy_is_taken(client, gateway):
    import tinker

    said = ["AB", [{"role": "user", "content": "C"}], tinker.ModelInput.from_ints([5]), {"text": "D", "id": "d"}]
    results = client.rollouts.create(said, base_model="toy", **ASKED).results()
    assert [group.prompt_tokens for group in results] == [(65, 66), (67,), (5,), (68,)] and results[3].id == "d"
    service = tinker.ServiceClient(base_url=gateway.url, api_key=gateway.key)
    training = service.create_lora_training_client("toy", rank=8).result()
    sampler = training.save_weights_and_get_sampling_client().result()
    path = training.save_weights_for_sampler("kept").result().path
    told = [
        client.rollouts.create(["A"], policy, **ASKED).results()[0].policy
        for policy in (sampler, path, training, training.model_id)
    ]
    assert told == [sampler._sampling_session_id, path, path, path]
    params = tinker.SamplingParams(max_tokens=2, temperature=0.5)
    (group,) = client.rollouts.create(["A"], run=training.model_id, **(ASKED | {"sampling": params})).results()
    assert [len(rollout.tokens) for rollout in group.rollouts] == [2, 2]


def test_a_judge_is_named_like_the_policy_of_a_batch(client, gateway):
    params = {"text": "{{completion}}?", "sampling": {"max_tokens": 2}}
    for policy in ("toy", {"base_model": "toy"}):
        judge = openrl.Reward("judge", params=params | {"policy": policy})
        batch = client.rollouts.create(["A"], "toy", **(ASKED | {"reward": judge}))
        assert len(batch.results()[0].rollouts) == ASKED["group_size"]
    asked = [op.action for op in gateway.worker.seen if op.action.kind == "ask_judge"]
    assert len(asked) == 2 and asked[0].base_model == "toy"


def test_what_is_wrong_is_told_by_name(client):
    with pytest.raises(RequestRefused, match=r"sampling\.max_tokens: is missing") as refused:
        client.rollouts.create(["A"], "toy", **(ASKED | {"sampling": {}}))
    assert refused.value.status == 422
    for wrong, said in (
        ({"policy": None}, "exactly one of policy"),
        ({"policy": "toy", "run": "r"}, "exactly one of policy"),
        ({"policy": SimpleNamespace(result=None)}, "is a future"),
        ({"policy": 7}, "policy is int"),
        ({"prompts": "A"}, "must be a list"),
        ({"prompts": ["A", 1.5]}, r"prompts\[1\] must be a text"),
        ({"prompts": [["A"]]}, r"prompts\[0\] must be a text"),
        ({"sampling": 3}, "sampling is int"),
        ({"reward": [7]}, "a reward is int"),
    ):
        with pytest.raises(TypeError, match=said):
            client.rollouts.create(**({"prompts": ["A"], "policy": "toy"} | ASKED | wrong))


def test_a_stream_that_breaks_anywhere_tells_each_group_once(client, gateway):
    whole = client.rollouts.create([[number] for number in range(1, 7)], "toy", **ASKED)
    length = sum(map(len, stream_of(gateway, whole)))
    cuts = [1, length // 7, length // 3, length // 2, length // 3 + 1]
    shaky = Breaking(*cuts)
    with openrl.Client(gateway.url, gateway.key, transport=shaky) as other:
        told = [group.index for group in other.rollouts.attach(whole.id)]
    assert sorted(told) == list(range(6)) and shaky.resumed[0] is None
    assert len(shaky.resumed) > 3 and int(shaky.resumed[-1]) > 1


def stream_of(gateway, batch):
    address = f"{gateway.url}/openrl/v1/rollouts/{batch.id}/events"
    return httpx.get(address, headers={"x-api-key": gateway.key}).iter_bytes()


def test_groups_are_read_as_they_finish_and_again(client, gateway):
    hold = threading.Event()
    gateway.worker.before = lambda op: op.id.endswith("1.reward") and hold.wait(20)
    batch = client.rollouts.create(["A", "B"], "toy", **ASKED)
    groups = iter(batch)
    assert next(groups).index == 0 and batch.state().status == "running" and not batch.state().over
    hold.set()
    assert [group.index for group in groups] == [1]
    assert sorted(group.index for group in batch) == [0, 1]
    state = batch.state()
    assert (state.id, state.status, state.over, state.groups_done) == (batch.id, "done", True, 2)
    assert (state.asked, state.done, state.dropped, state.dropped_by_reason) == (4, 4, 0, {})
    assert state.reward.mean == state.reward.parts["length"] == sum(sum(g.rewards) for g in batch.results()) / 4


def test_a_loop_may_stop_early(client, gateway):
    batch = client.rollouts.create(["A", "B", "C"], "toy", **ASKED)
    for group in batch:
        assert group.rollouts
        break
    assert len(batch.results()) == 3


def test_a_batch_is_called_off_and_found_again(client, gateway):
    hold = threading.Event()
    gateway.worker.before = lambda op: hold.wait(20)
    batch = client.rollouts.create(["A", "B"], "toy", **ASKED)
    state = batch.cancel()
    hold.set()
    assert state.status == "cancelled" and state.dropped_by_reason == {"OpCancelled": 4}
    found = client.rollouts.attach(batch.id)
    assert [len(group.dropped) for group in found.results()] == [2, 2]
    assert found.results()[0].dropped[0].error == "OpCancelled"
    with pytest.raises(RequestRefused, match="no batch of rollouts 'never'"):
        client.rollouts.attach("never")


def test_a_key_names_a_batch(client):
    one, other = (client.rollouts.create(["A"], "toy", key="the-key-of-a-step", **ASKED) for _ in range(2))
    assert one.id == other.id != client.rollouts.create(["A"], "toy", **ASKED).id


def test_what_cannot_be_had_is_dropped_or_ends_the_batch(client, gateway):
    def fail(op):
        if op.id.endswith("0.sample"):
            raise AdapterUnsupported("adapter.bin", "is broken")

    gateway.worker.before = fail
    batch = client.rollouts.create(["A", "B"], "toy", **ASKED)
    broken, whole = batch.results()
    assert len(broken.dropped) == len(whole.rollouts) == 2 and batch.state().dropped == 2
    strict = client.rollouts.create(["A", "B"], "toy", on_failure="fail", **ASKED)
    with pytest.raises(BatchFailed, match="AdapterUnsupported") as failed:
        strict.results()
    assert failed.value.dropped_by_reason["AdapterUnsupported"] == 2


def test_a_batch_that_expired_says_so(client, gateway, monkeypatch):
    batch = client.rollouts.create(["A"], "toy", **ASKED)
    batch.results()
    again = client.rollouts.attach(batch.id)
    monkeypatch.setattr(gateway.services.ledger, "read", lambda op_id: None)
    with pytest.raises(RequestRefused, match=f"no batch of rollouts '{batch.id}'"):
        again.results()


def test_a_batch_that_does_not_fit_is_told_as_a_refusal(tmp_path):
    hold = threading.Event()
    with toy_gateway(tmp_path, limits=Limits(max_waiting_per_tenant=4)) as up:
        up.worker.before = lambda op: hold.wait(20)
        with openrl.Client(up.url, up.key, patience_seconds=0.2) as client:
            with pytest.raises(RequestRefused, match="send at most 2 prompts at once") as never:
                client.rollouts.create(["A", "B", "C"], "toy", **ASKED)
            client.rollouts.create(["A"], "toy", **ASKED)
            with pytest.raises(RequestRefused, match="2 requests are waiting already and this would add 4") as refused:
                client.rollouts.create(["A", "B"], "toy", **ASKED)
            hold.set()
    assert (never.value.status, refused.value.status) == (422, 429)


def test_the_same_without_blocking(gateway):
    gateway.worker.before = lambda op: None

    async def read():
        async with openrl.AsyncClient(gateway.url, gateway.key) as client:
            batch = await client.rollouts.create(["A", "B"], "toy", **ASKED)
            first = [group.index async for group in batch]
            found = await client.rollouts.attach(batch.id)
            datums = await found.datums(advantages=lambda rewards: [1.0] * len(rewards))
            return first, await found.results(), await batch.state(), await batch.cancel(), datums

    first, results, state, cancelled, datums = asyncio.run(read())
    assert sorted(first) == [0, 1] == [group.index for group in results]
    assert state.status == cancelled.status == "done" and len(datums) == 4


def test_several_batches_are_read_at_once(gateway):
    gateway.worker.before = lambda op: None

    async def read():
        async with openrl.AsyncClient(gateway.url, gateway.key) as client:
            batches = [await client.rollouts.create(["A", "B"], "toy", **ASKED, progress=True) for _ in range(3)]
            return await asyncio.gather(*(batch.results() for batch in batches))

    assert [len(results) for results in asyncio.run(read())] == [2, 2, 2]
