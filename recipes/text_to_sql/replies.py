"""Replies: drawn from the service, scored, and made into training data. Knows nothing of stages and files."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import tinker
from chat import Chat
from problems import Problem
from reward import Score
from scoring import Scorer
from tinker import types


@dataclass(frozen=True, slots=True)
class Rollout:
    """One reply: its tokens, the log-probability of each when it was drawn, and what it scored."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    text: str
    score: Score


# --- draw and score ---------------------------------------------------------------------------------------------------


async def roll_out(
    sampler: tinker.SamplingClient, chat: Chat, problems: list[Problem], size: int, params: types.SamplingParams
) -> list[tuple[list[int], list[types.SampledSequence]]]:
    """`size` replies to each problem, with its prompt. All are asked for at once; the service decodes them together."""
    prompts = [chat.prompt(problem.messages()) for problem in problems]
    requests = [sampler.sample(types.ModelInput.from_ints(prompt), size, params) for prompt in prompts]
    answers = await asyncio.gather(*requests)
    return [(prompt, list(answer.sequences)) for prompt, answer in zip(prompts, answers, strict=True)]


async def scored(
    drawn: list[tuple[list[int], list[types.SampledSequence]]], chat: Chat, problems: list[Problem], scorer: Scorer
) -> list[list[Rollout]]:
    """The replies with their scores, grouped as they were drawn."""
    flat = [
        (problem, prompt, sequence, chat.text(sequence.tokens))
        for problem, (prompt, sequences) in zip(problems, drawn, strict=True)
        for sequence in sequences
    ]
    scores = iter(await scorer([text for *_, text in flat], [problem for problem, *_ in flat]))
    rollouts = iter(
        [Rollout(prompt, sequence.tokens, known(sequence), text, next(scores)) for _, prompt, sequence, text in flat]
    )
    return [[next(rollouts) for _ in sequences] for _, sequences in drawn]


def known(sequence: types.SampledSequence) -> list[float]:
    if sequence.logprobs is None:
        raise ValueError("the service returned a sample without log-probabilities; training needs them")
    return sequence.logprobs


# --- training data ----------------------------------------------------------------------------------------------------


def advantages(rewards: list[float]) -> list[float]:
    """Each reward against its own group's mean; nothing when all are the same (nothing to learn).

    They are not divided by the group's deviation: that would make a group whose replies differ in whether they compile
    count as much as one whose replies differ in whether they are right.
    """
    if max(rewards) == min(rewards):
        return []
    return [float(value) for value in np.array(rewards) - np.mean(rewards)]


def reinforced(rollout: Rollout, advantage: float) -> types.Datum:
    """A rollout as a training example: position i reads token i and is to predict token i + 1.

    Positions that predict the prompt have advantage 0.
    """
    return _datum(
        rollout.prompt, rollout.tokens, logprobs=rollout.logprobs, advantages=[advantage] * len(rollout.tokens)
    )


def supervised(chat: Chat, problem: Problem) -> types.Datum:
    """A problem with its gold query as a training example; positions that predict the prompt have weight 0."""
    reply = chat.reply(problem.gold)
    return _datum(chat.prompt(problem.messages()), reply, weights=[1.0] * len(reply))


def _datum(prompt: list[int], reply: list[int], **of_reply: list[float]) -> types.Datum:
    given = [0.0] * (len(prompt) - 1)
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "target_tokens": np.array(prompt[1:] + reply, dtype=np.int64),
        **{name: np.array(given + values, dtype=np.float32) for name, values in of_reply.items()},
    }
    tensors = {name: types.TensorData.from_numpy(array) for name, array in inputs.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(prompt + reply[:-1]), loss_fn_inputs=tensors)


# --- how good it is ---------------------------------------------------------------------------------------------------


async def answered(
    sampler: tinker.SamplingClient, chat: Chat, problems: list[Problem], scorer: Scorer, max_tokens: int
) -> list[dict[str, Any]]:
    """The likeliest reply to each problem, and what it scored."""
    params = types.SamplingParams(max_tokens=max_tokens, temperature=0.0, stop=[chat.closing])
    groups = await scored(await roll_out(sampler, chat, problems, 1, params), chat, problems, scorer)
    return [
        {
            "level": problem.level,
            "database": problem.database,
            "question": problem.question,
            "gold": problem.gold,
            "reply": rollout.text,
            "match": int(rollout.score.match),
            "compiles": int(rollout.score.compiles),
            "similarity": round(rollout.score.similarity, 3),
        }
        for problem, (rollout,) in zip(problems, groups, strict=True)
    ]


def summed_up(answers: list[dict[str, Any]]) -> dict[str, float]:
    """Means over all answers, and of the matches by level; `match_error` is the standard error of `match`."""
    levels = defaultdict[int, list[int]](list)
    for answer in answers:
        levels[answer["level"]].append(answer["match"])
    means = {name: fmean(answer[name] for answer in answers) for name in ("match", "compiles", "similarity")}
    error = (means["match"] * (1 - means["match"]) / len(answers)) ** 0.5
    return {**means, "match_error": error, **{f"match_level_{level}": fmean(levels[level]) for level in sorted(levels)}}
