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
        services.ledger._policies._retired.clear()
    for left in (clients[3], training.create_sampling_client(named).result()):
        assert left.sample(PROMPT, 1, once).result().sequences


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
