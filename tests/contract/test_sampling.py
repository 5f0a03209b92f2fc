import re
import time
from threading import Event

import numpy as np
import pytest
import tinker
from tinker import types

from openrl.config import Retention
from openrl.gateway.doubles import toy_gateway
from openrl.ledger.port import Limits
from openrl.testing import toy_logprobs
from workers.expiry import prune

PROMPT = types.ModelInput.from_ints([5, 6, 7])


@pytest.fixture(scope="module")
def sampler(service):
    return service.create_sampling_client(base_model="toy").result()


def test_samples_have_ids_of_their_own(sampler):
    response = sampler.sample(PROMPT, 4, types.SamplingParams(max_tokens=3)).result()
    assert len({sequence.sequence_id for sequence in response.sequences}) == 4
    assert response.sequences[0].tokens == [8, 9, 10]
    assert np.allclose(response.sequences[0].logprobs, toy_logprobs(np.array([8, 9, 10])))
    assert response.sequences[0].stop_reason == "length"


@pytest.mark.parametrize(
    ("given", "strings", "tokens", "at_eos"),
    [(None, (), (), True), ([], (), (), False), (["a", "b"], ("a", "b"), (), True), ([9], (), (9,), True)],
)
def test_stops_and_the_rest_reach_the_worker(gateway, sampler, given, strings, tokens, at_eos):
    params = types.SamplingParams(max_tokens=3, seed=7, stop=given, temperature=0.5, top_k=4, top_p=0.9)
    response = sampler.sample(PROMPT, 1, params).result()
    seen = gateway.worker.seen[-1].action.params
    assert (seen.stop_strings, seen.stop_tokens, seen.stop_at_eos) == (strings, tokens, at_eos)
    assert (seen.seed, seen.temperature, seen.top_k, seen.top_p) == (7, 0.5, 4, 0.9)
    assert response.sequences[0].stop_reason == ("stop" if tokens else "length")


def test_the_prompt_can_be_scored(sampler):
    logprobs = sampler.compute_logprobs(PROMPT).result()
    assert logprobs[0] is None
    assert logprobs[1:] == pytest.approx(toy_logprobs(np.array([6, 7])).tolist())


def test_everything_about_the_prompt_can_be_asked_at_once(sampler):
    targets = types.TensorData.from_numpy(np.array([[3, -1], [4, 5]]))
    response = sampler.sample(
        PROMPT,
        1,
        types.SamplingParams(max_tokens=2),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
        topk_sample_logprobs=2,
        target_prompt_logprobs=targets,
        prompt_alt_tokens_k=2,
        prompt_logprobs_last_n=1,
    ).result()
    assert response.prompt_logprobs[:2] == [None, None]
    assert [token for token, _ in response.topk_prompt_logprobs[0]] == [0, 1, 2]
    assert len(response.sequences[0].topk_logprobs) == 2
    assert response.target_prompt_logprobs.to_numpy()[0, 1] == 0.0
    assert response.prompt_alt_tokens.tokens.shape == [2, 2]


def test_sparse_targets_are_answered(sampler):
    import torch

    wanted = torch.full((2, 40), -1, dtype=torch.int64)
    wanted[1, 3] = 9
    targets = types.TensorData.from_torch_sparse(wanted, pad_value=-1)
    assert targets.sparse_crow_indices is not None
    response = sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1), target_prompt_logprobs=targets).result()
    answered = response.target_prompt_logprobs.to_numpy()
    assert answered.shape == (2, 40)
    assert answered[1, 3] == pytest.approx(-1.0)
    assert np.count_nonzero(answered) == 1


def test_no_sequences_may_be_asked_for(sampler):
    assert sampler.sample(PROMPT, 0, types.SamplingParams(max_tokens=1)).result().sequences == []


def test_a_sampler_keeps_the_weights_it_was_made_of(gateway, training):
    first = training.save_weights_and_get_sampling_client().result()
    second = training.save_weights_and_get_sampling_client().result()
    policies = []
    for sampler in (first, second, first):
        sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result()
        policies.append(gateway.worker.seen[-1].action.policy)
    assert policies[0] == policies[2] != policies[1]
    assert gateway.services.depot.has_folder(policies[0])


def test_a_sampler_whose_weights_were_removed_says_so_at_once_and_the_newest_goes_on(gateway, training):
    services, once = gateway.services, types.SamplingParams(max_tokens=1)
    clients = [training.save_weights_and_get_sampling_client().result() for _ in range(4)]
    named = training.save_weights_for_sampler("kept").result().path
    clients[1].sample(PROMPT, 1, once).result()
    prune(services.catalog, services.ledger, services.depot, Retention(unnamed_per_run=1, unused_seconds=0.0))
    for _ in range(2):
        for removed in clients[:3]:
            with pytest.raises(tinker.NotFoundError, match=r"were removed.*save_weights_for_sampler\(name\)"):
                removed.sample(PROMPT, 1, once).result(timeout=10)
        services._samplers._kept.clear()  # as a day later: the catalog alone knows
        services.ledger._rows.policies._retired.clear()
    for left in (clients[3], training.create_sampling_client(named).result()):
        assert left.sample(PROMPT, 1, once).result().sequences


def test_samplers_of_a_checkpoint_that_was_deleted_or_written_over_say_so_at_once(gateway, training, connect):
    once = types.SamplingParams(max_tokens=1)
    rest = tinker.RestClient(base_url=gateway.url, api_key=gateway.key)
    paths = [
        training.save_weights_for_sampler("deleted").result().path,
        training.save_state("state").result().path,
        training.save_state("over").result().path,
    ]
    samplers = [training.create_sampling_client(path).result() for path in paths]
    for sampler in samplers:
        assert sampler.sample(PROMPT, 1, once).result().sequences
    for path in paths[:2]:
        rest.delete_checkpoint_from_tinker_path(path).result()
    training.save_state("over", overwrite=True).result()
    remembered = gateway.services._samplers._kept, gateway.services.ledger._rows.policies._retired
    for known in ({}, *remembered):
        known.clear()
        for sampler in samplers:
            with pytest.raises(tinker.NotFoundError, match=r"were removed.*deleted, written over or past its time"):
                sampler.sample(PROMPT, 1, once).result(timeout=10)
    assert training.create_sampling_client(paths[2]).result().sample(PROMPT, 1, once).result().sequences


def test_too_many_waiting_samples_make_the_client_wait(tmp_path, connect):
    go = Event()
    with (
        toy_gateway(
            tmp_path, limits=Limits(max_waiting_per_tenant=4), before=lambda op: go.wait(20) and None
        ) as gateway,
        connect(gateway) as service,
    ):
        sampler = service.create_sampling_client(base_model="toy").result()
        futures = [sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)) for _ in range(6)]
        time.sleep(0.3)
        assert gateway.services.ledger.waiting(gateway.services.tenant(gateway.key)) == 4
        go.set()
        assert all(future.result().sequences for future in futures)


def test_a_sample_that_nobody_waits_for_is_called_off(gateway, sampler):
    go = Event()
    gateway.worker.before = lambda op: go.wait(20) and None
    try:
        future = sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1))
        with pytest.raises(TimeoutError):
            future.result(timeout=0.3)
        future.future().cancel()
        tenant = gateway.services.tenant(gateway.key)
        until = time.monotonic() + 5
        while gateway.services.ledger.waiting(tenant) and time.monotonic() < until:
            time.sleep(0.05)
        assert gateway.services.ledger.waiting(tenant) == 0
    finally:
        go.set()
        gateway.worker.before = lambda op: None


def test_a_wrong_request_is_refused_by_its_field(sampler):
    with pytest.raises(tinker.UnprocessableEntityError, match=r"sampling_params\.max_tokens: 100 after a prompt of 3"):
        sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=100)).result()


ASKED = {"prompt": PROMPT, "num_samples": 1}


@pytest.mark.parametrize(
    ("params", "asked", "said"),
    [
        ({"max_tokens": 0}, {}, "sampling_params.max_tokens: must be greater than or equal to 1"),
        ({"max_tokens": 2**70}, {}, "sampling_params.max_tokens: must be less than or equal to 2147483647"),
        ({"top_k": 0}, {}, "sampling_params.top_k: is 0; it must be -1"),
        ({"top_k": -2}, {}, "sampling_params.top_k: must be greater than or equal to -1"),
        ({"top_p": 0.0}, {}, "sampling_params.top_p: must be greater than 0"),
        ({"top_p": 1.5}, {}, "sampling_params.top_p: must be less than or equal to 1"),
        ({"temperature": -1.0}, {}, "sampling_params.temperature: must be greater than or equal to 0"),
        ({"temperature": 1e-40}, {}, "sampling_params.temperature: is 1e-40; send 0"),
        ({"seed": -1}, {}, "sampling_params.seed: must be greater than or equal to 0"),
        ({"seed": 2**70}, {}, "sampling_params.seed: must be less than or equal to 9223372036854775807"),
        ({"stop": ""}, {}, "sampling_params.stop: must hold only strings of 1 to 1024 characters"),
        ({"stop": [100]}, {}, "sampling_params.stop: token 100 is outside the vocabulary"),
        ({}, {"num_samples": -1}, "num_samples: must be greater than or equal to 0"),
        ({}, {"num_samples": 100_000}, "num_samples: must be less than or equal to 1024"),
        ({}, {"topk_prompt_logprobs": 101}, "topk_prompt_logprobs: is 101; the vocabulary has 100 tokens"),
        ({}, {"topk_sample_logprobs": 10**6}, "topk_sample_logprobs: must be less than or equal to 1024"),
        ({}, {"prompt": types.ModelInput.empty()}, "prompt: has no tokens"),
        ({}, {"prompt": types.ModelInput.from_ints([1, 100])}, "prompt: token 100 at position 1 is outside"),
        ({}, {"prompt": types.ModelInput.from_ints([1] * 70)}, "prompt: 70 tokens are more than the model's context"),
    ],
)
def test_what_cannot_be_sampled_is_refused_by_its_field_before_anybody_waits(gateway, sampler, params, asked, said):
    before = len(gateway.worker.seen)
    with pytest.raises(tinker.UnprocessableEntityError, match=re.escape(said)):
        sampler.sample(**ASKED | asked, sampling_params=types.SamplingParams(**{"max_tokens": 3} | params)).result(10)
    assert len(gateway.worker.seen) == before


@pytest.mark.parametrize("field", ["temperature", "top_p"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_number_that_is_none_is_not_sent(sampler, field, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1, **{field: value})).result(10)


def test_weights_and_models_that_are_not_there_cannot_be_sampled(gateway, service, training, connect):
    path = training.save_weights_for_sampler("mine").result().path
    unknown = path.replace("/mine", "/other")
    with connect(gateway, gateway.other_key) as stranger:
        for client, absent in ((stranger, path), (service, unknown)):
            with pytest.raises(tinker.NotFoundError, match=f"path: no checkpoint '{absent}'"):
                client.create_sampling_client(model_path=absent).result()
    with pytest.raises(tinker.UnprocessableEntityError, match="base_model: 'nobody' is not served here; served"):
        service.create_sampling_client(base_model="nobody").result()
    with pytest.raises(tinker.UnprocessableEntityError, match="model_path: 'tinker://what' is not of the form"):
        service.create_sampling_client(model_path="tinker://what").result()
