"""What every sample engine promises of a prompt's own log-probabilities: at temperature 1, of the policy's model."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from laboratory import ALL, Laboratory, targets

PROMPT = list(range(20, 33))
LENGTH = len(PROMPT)


def expected(lab: Laboratory, prompt: list[int], policy: str | None = None) -> torch.Tensor:
    return torch.log_softmax(lab.logits(prompt, policy)[:-1], -1)


@pytest.mark.parametrize("policy", [None, "scored"])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_prompt_logprobs_are_those_of_a_plain_pass(lab: Laboratory, temperature: float, policy: str | None) -> None:
    if policy:
        lab.publish(policy, 3)
    result = lab.run(lab.ask(PROMPT, 4, temperature=temperature, prompt_logprobs=True, policy=policy))[0]
    found = lab.array(result.prompt_logprobs)
    assert math.isnan(found[0])
    wanted = expected(lab, PROMPT, policy)[range(LENGTH - 1), PROMPT[1:]]
    assert found[1:] == pytest.approx(wanted.numpy(), abs=1e-3)
    assert len(lab.tokens(result.sequences[0])) == 4


def test_the_likeliest_tokens_of_each_position_are_told(lab: Laboratory) -> None:
    result = lab.run(lab.ask(PROMPT, 1, topk_prompt_logprobs=3))[0]
    assert result.top_prompt_logprobs is not None
    assert result.prompt_logprobs is None
    ids, values = (
        lab.array(result.top_prompt_logprobs.token_ids),
        lab.array(result.top_prompt_logprobs.logprobs),
    )
    wanted = expected(lab, PROMPT).topk(3, -1)
    assert (ids[0].tolist(), values[0].tolist()) == ([0, 0, 0], [-99999.0] * 3)
    assert ids[1:].tolist() == wanted.indices.tolist()
    assert values[1:] == pytest.approx(wanted.values.numpy(), abs=1e-3)


@pytest.mark.parametrize("last", [1, 5, LENGTH - 1])
def test_only_so_many_at_the_end_are_scored(lab: Laboratory, last: int) -> None:
    asked = lab.ask(PROMPT, 1, prompt_logprobs=True, topk_prompt_logprobs=2, prompt_logprobs_last_n=last)
    result = lab.run(asked)[0]
    whole = lab.run(lab.ask(PROMPT, 1, prompt_logprobs=True))[0]
    found = lab.array(result.prompt_logprobs)
    assert np.isnan(found[: LENGTH - last]).all()
    assert found[LENGTH - last :] == pytest.approx(lab.array(whole.prompt_logprobs)[LENGTH - last :], abs=1e-3)
    assert result.top_prompt_logprobs is not None
    assert (lab.array(result.top_prompt_logprobs.logprobs)[: LENGTH - last] == -99999.0).all()
    assert (lab.array(result.top_prompt_logprobs.logprobs)[LENGTH - last :] > -99999.0).all()


def test_a_prompt_of_one_token_has_nothing_to_score(lab: Laboratory) -> None:
    result = lab.run(lab.ask([5], 2, prompt_logprobs=True, topk_prompt_logprobs=2))[0]
    assert np.isnan(lab.array(result.prompt_logprobs)).all()
    assert len(lab.tokens(result.sequences[0])) == 2


def test_many_prompts_are_scored_at_once_beside_samples_of_adapters(lab: Laboratory) -> None:
    policies = [None, lab.publish("beside-0", 50, leaves=ALL), lab.publish("beside-1", 51, leaves=ALL)]
    prompts = [[3 + (7 * at + step) % 90 for step in range(5 + 3 * at)] for at in range(12)]
    scored = [
        lab.ask(prompt, 2, prompt_logprobs=True, policy=policies[at % 3], temperature=0.0)
        for at, prompt in enumerate(prompts)
    ]
    drawn = [lab.ask(PROMPT, 30, policy=policies[at % 3], temperature=0.0) for at in range(6)]
    results = lab.run(*drawn, *scored)[6:]
    for at, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        wanted = expected(lab, prompt, policies[at % 3])[range(len(prompt) - 1), prompt[1:]]
        assert lab.array(result.prompt_logprobs)[1:] == pytest.approx(wanted.numpy(), abs=1e-3)
        assert lab.tokens(result.sequences[0]) == lab.greedy(prompt, 2, policies[at % 3])


def test_a_prompt_seen_before_is_scored_all_the_same(lab: Laboratory) -> None:
    prompt = [3 + at % 90 for at in range(200)]
    wanted = expected(lab, prompt)[range(199), prompt[1:]].numpy()
    for _ in range(2):
        lab.run(lab.ask(prompt, 2))
        result = lab.run(lab.ask(prompt, 2, prompt_logprobs=True))[0]
        assert lab.array(result.prompt_logprobs)[1:] == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("fields", [{}, {"prompt_logprobs": True, "topk_prompt_logprobs": 2}], ids=str)
def test_targets_are_told(lab: Laboratory, fields: dict[str, Any]) -> None:
    lab.publish("targeted", 9, leaves=ALL)
    prompt = [3 + (5 * at) % 90 for at in range(150)]
    asked = [[(5 * at + column) % 97 if (at + column) % 3 else -1 for column in range(3)] for at in range(149)]
    policies = [None, "targeted", None, "targeted"]
    one = [lab.ask(prompt, 1, target_prompt_logprobs=targets(asked), policy=policy, **fields) for policy in policies]
    for policy, result in zip(policies, lab.run(*one), strict=True):
        known = expected(lab, prompt, policy)
        wanted = known.gather(-1, torch.tensor(asked).clamp(min=0)).numpy()
        found = lab.array(result.target_prompt_logprobs)
        assert found == pytest.approx(np.where(np.array(asked) >= 0, wanted, 0.0), abs=1e-3)
        if fields:
            assert lab.array(result.prompt_logprobs)[1:] == pytest.approx(
                known[range(149), prompt[1:]].numpy(), abs=1e-3
            )
            assert result.top_prompt_logprobs is not None
            assert lab.array(result.top_prompt_logprobs.token_ids)[1:].tolist() == known.topk(2, -1).indices.tolist()


def test_alternatives_are_drawn_or_refused_by_name(lab: Laboratory, served: set[str]) -> None:
    request = lab.ask(PROMPT, 1, seed=1, prompt_alternatives=2)
    if "prompt_alternatives" not in served:
        assert str(lab.error(request)).startswith("prompt_alt_tokens_k: ")
        return
    alternatives = lab.run(request)[0].prompt_alternatives
    assert alternatives is not None
    ids, values = (lab.array(each) for each in alternatives)
    assert values == pytest.approx(expected(lab, PROMPT).gather(-1, torch.tensor(ids)).numpy(), abs=1e-3)
