"""The main job in small: the real SDK trains through queues and workers; a sampler gives back what was learned."""

import pytest
import tinker
from loops import PROMPT, TARGET, greedy, sft_datum

pytestmark = pytest.mark.live


def test_a_three_token_target_is_learned_from_scratch(service: tinker.ServiceClient) -> None:
    training = service.create_lora_training_client(base_model="tiny", rank=8, seed=1).result()
    before = training.save_weights_and_get_sampling_client().result()
    losses = []
    for _ in range(40):
        passed = training.forward_backward([sft_datum()], "cross_entropy")
        stepped = training.optim_step(tinker.AdamParams(learning_rate=2e-2))
        losses.append(passed.result().metrics["loss:sum"])
        assert stepped.result().metrics
    after = training.save_weights_and_get_sampling_client().result()

    assert losses[-1] < 0.1 < losses[0]
    assert greedy(after) == TARGET
    assert greedy(before) != TARGET, "an older sampler keeps its own weights"


def test_reinforcement_raises_the_probability_of_what_was_rewarded(service: tinker.ServiceClient) -> None:
    """Policy gradient alone, from samples: the reward is the share of tokens with small ids, a fifth at the start."""
    training = service.create_lora_training_client(base_model="tiny", rank=8, seed=2).result()
    means = []
    for _ in range(25):
        sampler = training.save_weights_and_get_sampling_client().result()
        answer = sampler.sample(
            prompt=tinker.ModelInput.from_ints(PROMPT),
            num_samples=16,
            sampling_params=tinker.SamplingParams(max_tokens=4, stop=[]),
        ).result()
        rewards = [sum(token < 100 for token in sequence.tokens) / 4 for sequence in answer.sequences]
        mean = sum(rewards) / len(rewards)
        means.append(mean)
        data = []
        for sequence, reward in zip(answer.sequences, rewards, strict=True):
            tokens = PROMPT + sequence.tokens
            pad = [0.0] * (len(PROMPT) - 1)
            data.append(
                tinker.Datum(
                    model_input=tinker.ModelInput.from_ints(tokens[:-1]),
                    loss_fn_inputs={
                        "target_tokens": tokens[1:],
                        "logprobs": pad + list(sequence.logprobs or []),
                        "advantages": pad + [reward - mean] * len(sequence.tokens),
                    },
                )
            )
        passed = training.forward_backward(data, "importance_sampling")
        training.optim_step(tinker.AdamParams(learning_rate=3e-2)).result()
        passed.result()
    assert sum(means[-3:]) / 3 > 0.6 > 0.4 > means[0]


def test_a_saved_run_goes_on_where_it_was(service: tinker.ServiceClient) -> None:
    training = service.create_lora_training_client(base_model="tiny", rank=4, seed=3).result()
    for _ in range(3):
        training.forward_backward([sft_datum()], "cross_entropy").result()
        training.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
    path = training.save_state("three").result().path
    resumed = service.create_training_client_from_state_with_optimizer(path).result()
    weights_only = service.create_training_client_from_state(path).result()

    def go_on(client: tinker.TrainingClient) -> list[float]:
        out = []
        for _ in range(3):
            passed = client.forward_backward([sft_datum()], "cross_entropy").result()
            client.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
            out.append(passed.metrics["loss:sum"])
        return out

    expected, with_optimizer, without = go_on(training), go_on(resumed), go_on(weights_only)
    assert with_optimizer == pytest.approx(expected, rel=1e-4)
    assert without[0] == pytest.approx(expected[0], rel=1e-4)
    assert without[-1] != pytest.approx(expected[-1], rel=1e-3)


def test_a_custom_loss_of_the_client_trains(service: tinker.ServiceClient) -> None:
    training = service.create_lora_training_client(base_model="tiny", rank=4, seed=4).result()
    values = []
    for _ in range(8):
        passed = training.forward_backward_custom(
            [sft_datum()], lambda data, logprobs: ((logprobs[0][-3:] ** 2).sum(), {"n": 3.0})
        )
        training.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
        values.append(passed.result().metrics["loss:sum"])
    assert values[-1] < 0.7 * values[0]
