"""What every sample engine promises: tokens, log-probabilities, luck, ends."""

import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest
import torch
from laboratory import ALL, CONTEXT, EOS, Laboratory, spell

from openrl.domain.sampling import StopReason

PROMPT = list(range(20, 33))


@pytest.mark.parametrize("policy", [None, "greedy-adapter"])
def test_greedy_tokens_are_the_likeliest_of_plain_passes(lab: Laboratory, policy: str | None) -> None:
    if policy:
        lab.publish(policy, 1)
    found = lab.sample(PROMPT, 16, temperature=0.0, policy=policy)
    assert lab.tokens(found) == lab.greedy(PROMPT, 16, policy)
    chosen = lab.expected(PROMPT, lab.tokens(found), 1.0, policy).amax(-1)
    assert lab.array(found.logprobs) == pytest.approx(chosen.numpy(), abs=1e-3)
    if policy:
        assert lab.tokens(found) != lab.greedy(PROMPT, 16)


@pytest.mark.parametrize("policy", [None, "scaled-adapter"])
@pytest.mark.parametrize("cut", [{}, {"top_k": 3}, {"top_p": 0.6}, {"top_k": 5, "top_p": 0.7}])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_logprobs_are_scaled_by_the_temperature_and_not_cut(
    lab: Laboratory, temperature: float, cut: dict[str, float], policy: str | None
) -> None:
    if policy:
        lab.publish(policy, 2)
    found = lab.sample(PROMPT, 12, temperature=temperature, seed=3, topk_sample_logprobs=4, policy=policy, **cut)
    drawn = lab.tokens(found)
    expected = lab.expected(PROMPT, drawn, temperature, policy)
    assert lab.array(found.logprobs) == pytest.approx(expected[range(12), drawn].numpy(), abs=1e-3)
    values, ids = expected.topk(4, -1)
    assert found.top_logprobs is not None
    assert lab.array(found.top_logprobs.token_ids).tolist() == ids.tolist()
    assert lab.array(found.top_logprobs.logprobs) == pytest.approx(values.numpy(), abs=1e-3)


def test_rows_of_one_step_each_have_their_own_temperature_and_cut(lab: Laboratory) -> None:
    asked = [(0.0, -1), (0.5, 2), (1.0, -1), (2.0, 4), (0.0, -1), (1.5, 1)]
    requests = [lab.ask(PROMPT, 12, temperature=t, top_k=k, seed=9, topk_sample_logprobs=1) for t, k in asked]
    for (temperature, top_k), result in zip(asked, lab.run(*requests), strict=True):
        drawn = lab.tokens(result.sequences[0])
        expected = lab.expected(PROMPT, drawn, temperature)
        assert lab.array(result.sequences[0].logprobs) == pytest.approx(expected[range(12), drawn].numpy(), abs=1e-3)
        if temperature and top_k > 0:
            ranks = (expected > expected[range(12), drawn][:, None]).sum(-1)
            assert int(ranks.max()) < top_k


def test_a_seed_gives_the_same_samples_alone_and_in_a_crowd(lab: Laboratory) -> None:
    wanted = lab.ask(PROMPT, 10, seed=42, num_samples=4)
    alone = lab.run(wanted)[0]
    crowd = [lab.ask(range(3, 3 + n), 15, seed=n) for n in range(1, 9)]
    together = lab.run(*crowd[:4], wanted, *crowd[4:])[4]
    assert [lab.tokens(s) for s in together.sequences] == [lab.tokens(s) for s in alone.sequences]
    assert len({tuple(lab.tokens(s)) for s in alone.sequences}) == 4, "samples of a request are independent"


def test_neighbouring_seeds_and_samples_share_no_luck(lab: Laboratory) -> None:
    """Sample 1 of seed 7 is not sample 0 of seed 8, as where a seed were counted up."""
    results = lab.run(*[lab.ask(PROMPT, 12, seed=seed, num_samples=4) for seed in range(7, 11)])
    assert len({tuple(lab.tokens(s)) for result in results for s in result.sequences}) == 16


def test_without_a_seed_samples_differ(lab: Laboratory) -> None:
    first, second = lab.run(lab.ask(PROMPT, 12), lab.ask(PROMPT, 12))
    assert lab.tokens(first.sequences[0]) != lab.tokens(second.sequences[0])


def test_samples_end_at_their_stops_and_keep_the_stop_token(lab: Laboratory) -> None:
    free = lab.greedy(PROMPT, 12)
    token = next(token for token in free[1:] if free.index(token) > 0)
    word = spell(free)[2:5]
    stopped, spelled, both, length = lab.run(
        lab.ask(PROMPT, 12, temperature=0.0, stop_tokens=(token,)),
        lab.ask(PROMPT, 12, temperature=0.0, stop_strings=(word,)),
        lab.ask(PROMPT, 12, temperature=0.0, stop_strings=("nothing", word), stop_tokens=(free[-1],)),
        lab.ask(PROMPT, 4, temperature=0.0),
    )
    assert lab.tokens(stopped.sequences[0]) == free[: free.index(token) + 1]
    ended = free[: spell(free).index(word) + 3]
    assert lab.tokens(spelled.sequences[0]) == ended
    at_token = free[: free.index(free[-1]) + 1]
    assert lab.tokens(both.sequences[0]) == min(ended, at_token, key=len)
    assert lab.tokens(length.sequences[0]) == free[:4]
    reasons = [result.sequences[0].stop_reason for result in (stopped, spelled, both, length)]
    assert reasons == [StopReason.STOP, StopReason.STOP, StopReason.STOP, StopReason.LENGTH]
    for result in (stopped, spelled, both, length):
        assert len(lab.array(result.sequences[0].logprobs)) == len(lab.tokens(result.sequences[0]))


def test_a_stop_at_the_last_token_allowed_is_a_stop(lab: Laboratory) -> None:
    free = lab.greedy(PROMPT, 12)
    at = next(index for index, token in enumerate(free) if index and token not in free[:index])
    found = lab.sample(PROMPT, at + 1, temperature=0.0, stop_tokens=(free[at],))
    assert (lab.tokens(found), found.stop_reason) == (free[: at + 1], StopReason.STOP)


def test_the_models_own_end_is_obeyed_unless_told_not_to(lab: Laboratory) -> None:
    asked = [lab.ask(PROMPT, 60, temperature=2.0, seed=seed, stop_at_eos=False) for seed in range(8)]
    free = [lab.tokens(result.sequences[0]) for result in lab.run(*asked)]
    seed = next(seed for seed, tokens in enumerate(free) if EOS in tokens[:-1])
    ended = lab.sample(PROMPT, 60, temperature=2.0, seed=seed, stop_at_eos=True)
    assert lab.tokens(ended) == free[seed][: free[seed].index(EOS) + 1]
    assert ended.stop_reason is StopReason.STOP
    assert len(free[seed]) == 60


def test_no_samples_and_no_tokens_are_answered_with_nothing(lab: Laboratory) -> None:
    none, empty, scored, both = lab.run(
        lab.ask(PROMPT, num_samples=0),
        lab.ask(PROMPT, 0, num_samples=2, topk_sample_logprobs=3),
        lab.ask(PROMPT, num_samples=0, prompt_logprobs=True),
        lab.ask(PROMPT, 0, num_samples=2, prompt_logprobs=True),
    )
    assert none.sequences == scored.sequences == ()
    assert [lab.tokens(s) for s in empty.sequences] == [lab.tokens(s) for s in both.sequences] == [[], []]
    assert empty.sequences[0].top_logprobs is not None
    assert empty.sequences[0].top_logprobs.token_ids.shape == (0, 3)
    assert lab.array(scored.prompt_logprobs)[1:] == pytest.approx(lab.array(both.prompt_logprobs)[1:], abs=1e-3)


def test_adapters_and_the_base_share_steps_and_equal_each_alone(lab: Laboratory) -> None:
    policies = [None, *(lab.publish(f"mixed-{number}", 10 + number, leaves=ALL) for number in range(3))]
    requests = [lab.ask(PROMPT[: 3 + at % 5], 10, policy=policies[at % 4], temperature=0.0) for at in range(12)]
    for request, result in zip(requests, lab.run(*requests), strict=True):
        expected = lab.greedy(list(request.prompt), 10, request.policy)
        assert lab.tokens(result.sequences[0]) == expected


@pytest.mark.parametrize("leaves", [("q_proj", "o_proj"), ("lm_head",), ("down_proj", "lm_head")], ids=str)
def test_an_adapter_of_some_layers_only_is_applied_to_those(lab: Laboratory, leaves: tuple[str, ...]) -> None:
    lab.publish(name := f"only {leaves}", 5, scale=0.2, leaves=leaves)
    found = lab.tokens(lab.sample(PROMPT, 10, policy=name, temperature=0.0))
    assert found == lab.greedy(PROMPT, 10, name) != lab.greedy(PROMPT, 10)


def test_more_policies_than_places_come_and_go_and_come_back(lab: Laboratory) -> None:
    policies = [lab.publish(f"many-{number}", 30 + number) for number in range(9)]
    expected = {policy: lab.greedy(PROMPT, 6, policy) for policy in policies}
    for _ in range(2):
        requests = [lab.ask(PROMPT, 6, policy=policy, temperature=0.0) for policy in policies]
        found = [lab.tokens(result.sequences[0]) for result in lab.run(*requests)]
        assert found == list(expected.values())
    assert lab.fetched.count(policies[0]) == 2, "it had left in between"


def test_a_cancelled_request_ends_and_the_others_go_on(lab: Laboratory) -> None:
    alone = lab.sample(PROMPT, 40, seed=1)
    gone, kept = lab.engine.submit(lab.ask(PROMPT, 200, num_samples=4)), lab.engine.submit(lab.ask(PROMPT, 40, seed=1))
    lab.engine.cancel(gone)
    with pytest.raises(CancelledError):
        gone.result(0)
    assert lab.tokens(kept.result(60).sequences[0]) == lab.tokens(alone)


def test_any_thread_may_ask(lab: Laboratory) -> None:
    found: dict[int, list[int]] = {}

    def ask(seed: int) -> None:
        found[seed] = lab.tokens(lab.sample(PROMPT, 6, seed=seed))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {seed: lab.tokens(lab.sample(PROMPT, 6, seed=seed)) for seed in range(8)}


def test_the_whole_context_can_be_filled(lab: Laboratory) -> None:
    prompt = [3 + at % 90 for at in range(CONTEXT - 8)]
    assert lab.tokens(lab.sample(prompt, 8, temperature=0.0)) == lab.greedy(prompt, 8)


def test_samples_of_long_prompts_are_right(lab: Laboratory) -> None:
    """Prompts of more than one block of a paged cache, that begin alike, asked one after the other and at once."""
    generator = np.random.default_rng(0)
    start = generator.integers(3, 97, 140).tolist()
    prompts = [start + generator.integers(3, 97, size).tolist() for size in (0, 1, 20, 60)]
    expected = [lab.greedy(prompt, 6) for prompt in prompts]
    for _ in range(2):
        results = lab.run(*[lab.ask(prompt, 6, temperature=0.0) for prompt in prompts])
        assert [lab.tokens(result.sequences[0]) for result in results] == expected
    assert torch.tensor(expected).shape == (4, 6)
