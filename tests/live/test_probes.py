"""Two probes of a server's numbers, by the SDK alone: what temperature does to log-probabilities, and whether those of
sampling are those of training."""

from collections.abc import Sequence

import numpy as np
import pytest
import tinker
from loops import train

pytestmark = pytest.mark.live

PROMPT = [11, 12, 13, 14, 300, 21]
CLOSE = 1e-4  #: in float32
VOCABULARY = 512


@pytest.fixture
def run(service: tinker.ServiceClient) -> tinker.TrainingClient:
    """A run that has learned: its samples are far from those of the base model."""
    client = service.create_lora_training_client(base_model="tiny", rank=8, seed=3).result()
    train(client, steps=6)
    return client


def sample(sampler: tinker.SamplingClient, **params: float) -> tinker.SampledSequence:
    asked = tinker.SamplingParams(**{"max_tokens": 12, "stop": [], **params})
    answer = sampler.sample(tinker.ModelInput.from_ints(PROMPT), 1, asked, topk_sample_logprobs=VOCABULARY)
    (sequence,) = answer.result().sequences
    return sequence


def table(top: Sequence[Sequence[tuple[int, float]] | None]) -> np.ndarray:
    """[places, vocabulary], by token."""
    found = np.full((len(top), VOCABULARY), np.nan)
    for place, pairs in enumerate(top):
        for token, logprob in pairs or ():
            found[place, token] = logprob
    return found


def at_temperature_one(sampler: tinker.SamplingClient, tokens: list[int]) -> np.ndarray:
    """What the model says at each place of a continuation, read off a prompt: [tokens, vocabulary]."""
    whole = tinker.ModelInput.from_ints([*PROMPT, *tokens])
    once = tinker.SamplingParams(max_tokens=1)
    scored = sampler.sample(whole, 1, once, include_prompt_logprobs=True, topk_prompt_logprobs=VOCABULARY).result()
    return table(scored.topk_prompt_logprobs[len(PROMPT) :])


@pytest.mark.parametrize("cut", [{}, {"top_k": 3}, {"top_p": 0.3}], ids=["whole", "top_k", "top_p"])
def test_differences_of_log_probabilities_scale_with_the_inverse_of_temperature(
    run: tinker.TrainingClient, cut: dict[str, float]
) -> None:
    sampler = run.save_weights_and_get_sampling_client().result()
    for temperature in (0.25, 0.5, 1.0, 2.0, 8.0):
        drawn = sample(sampler, temperature=temperature, **cut)
        found, expected = table(drawn.topk_logprobs), at_temperature_one(sampler, drawn.tokens)
        assert np.exp(found).sum(-1) == pytest.approx(np.ones(len(found)), abs=CLOSE), "of the whole vocabulary"
        apart = temperature * (found - found[:, :1])
        assert apart == pytest.approx(expected - expected[:, :1], abs=CLOSE * max(1.0, temperature))
        own = found[np.arange(len(found)), drawn.tokens]
        assert drawn.logprobs == pytest.approx(own, abs=1e-6), "of the sampled token as of all"


def test_at_temperature_zero_log_probabilities_are_those_of_one(run: tinker.TrainingClient) -> None:
    sampler = run.save_weights_and_get_sampling_client().result()
    drawn = sample(sampler, temperature=0.0)
    found = table(drawn.topk_logprobs)
    assert found == pytest.approx(at_temperature_one(sampler, drawn.tokens), abs=CLOSE)
    assert drawn.tokens == found.argmax(-1).tolist()


def trained(client: tinker.TrainingClient, tokens: list[int]) -> np.ndarray:
    """Log-probabilities of all tokens but the first, by a forward pass of the train engine."""
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)},
    )
    (output,) = client.forward([datum], "cross_entropy").result().loss_fn_outputs
    return output["logprobs"].to_numpy()


def agree(sampler: tinker.SamplingClient, client: tinker.TrainingClient) -> bool:
    """Whether sampling's log-probabilities of a sample and of its prompt are training's."""
    drawn = sample(sampler, temperature=1.0)
    whole = [*PROMPT, *drawn.tokens]
    expected = trained(client, whole)
    scored = sampler.compute_logprobs(tinker.ModelInput.from_ints(whole)).result()
    found = np.array([*scored[1:], *drawn.logprobs])
    return np.allclose(found, [*expected, *expected[len(PROMPT) - 1 :]], rtol=0, atol=CLOSE)


def test_sampling_and_training_agree_on_log_probabilities_before_and_after_each_step(
    service: tinker.ServiceClient,
) -> None:
    client = service.create_lora_training_client(base_model="tiny", rank=8, seed=4).result()
    assert agree(service.create_sampling_client(base_model="tiny").result(), client)
    for _ in range(3):
        before = client.save_weights_and_get_sampling_client().result()
        assert agree(before, client)
        train(client, steps=2)
        assert not agree(before, client), "the run has gone on since"
    named = client.save_weights_for_sampler("probed").result().path
    assert agree(service.create_sampling_client(model_path=named).result(), client)
