"""A judge through a whole server: sampled, asked, scored; whoever dies, each rollout comes once."""

import re
from typing import Any

import pytest
from living import Server

import openrl

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PROMPTS, SAMPLES = 16, 4
KILLED = {2: "device worker", 6: "reward worker", 9: "gateway"}  #: once so many groups have come
#: A random model says noise, which can be read where it has a letter of the alphabet's first half, or else its second.
PATTERN, LABELS = r"(?s)^.*?([a-z])", {chr(code): float(code < ord("n")) for code in range(ord("a"), ord("z") + 1)}


def judge(**params: Any) -> openrl.Reward:
    asks = [{"role": "user", "content": "{{prompt}} {{completion}} Right, if {{context.answer}} is?"}]
    sampling = {"max_tokens": 3, "temperature": 1.0, "seed": 3}
    return openrl.Reward(
        "judge", 2.0, {"policy": {"base_model": "tiny"}, "messages": asks, "sampling": sampling} | params
    )


def create(client: openrl.Client, *rewards: Any, **how: Any) -> Any:
    said = [[{"role": "user", "content": f"{number} and {number}?"}] for number in range(PROMPTS)]
    prompts = [openrl.Prompt(each, context={"answer": 2 * number}) for number, each in enumerate(said)]
    sampling = {"max_tokens": 20, "temperature": 1.0, "seed": 7}
    return client.rollouts.create(prompts, "tiny", group_size=SAMPLES, sampling=sampling, reward=list(rewards), **how)


def test_every_rollout_is_judged_once_or_told_why_not_whoever_dies(server: Server, client: openrl.Client) -> None:
    batch = create(client, "numeric", judge(pattern=PATTERN, labels=LABELS))
    groups = []
    for group in batch:
        groups.append(group)
        if part := KILLED.get(len(groups)):
            server.kill(part)
    assert sorted(group.index for group in groups) == list(range(PROMPTS))
    scored = [rollout for group in groups for rollout in group.rollouts]
    dropped = [each for group in groups for each in group.dropped]
    assert len(scored) + len(dropped) == PROMPTS * SAMPLES
    assert {each.error for each in dropped} <= {"AnswerUnreadable"}
    for rollout in scored:
        match = re.search(PATTERN, rollout.info["judge.answer"])
        assert match is not None and rollout.parts["judge"] == LABELS[match[1]]
        assert rollout.reward == rollout.parts["numeric"] + 2.0 * rollout.parts["judge"]
    state = batch.state()
    assert state.dropped_by_reason.get("AnswerUnreadable", 0) == len(dropped)
    assert {rollout.parts["judge"] for rollout in scored} == {0.0, 1.0}, "scores that are all alike prove nothing"


def test_answers_that_nobody_can_read_are_dropped_and_counted_and_never_zeros(client: openrl.Client) -> None:
    batch = create(client, judge(labels={"a word that no tiny model says": 1.0}))
    groups = batch.results()
    assert all(group.rollouts == () and len(group.dropped) == SAMPLES for group in groups)
    state = batch.state()
    assert state.status == "done" and state.dropped_by_reason == {"AnswerUnreadable": PROMPTS * SAMPLES}
    assert state.reward.mean is None
