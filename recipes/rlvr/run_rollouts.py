"""The recipe of `run.py` with rollouts that the service makes: it renders, samples, decodes and scores.

The reward runs on the reward queue under the name `facts_to_json`: install it where the reward workers are, before they
start. Replies cross the network once, scored, and no tokenizer is needed here. Options are those of `run.py`.

    pip install ./recipes/rlvr && openrl serve
    TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-... python recipes/rlvr/run_rollouts.py
"""

import json
import random
import sys
import time
from statistics import fmean
from typing import Any

import tinker
from reward import Problem, draw, reward
from run import UNSEEN_PROBLEMS, Options, Report, main, parse_options
from tinker import types

import openrl
from openrl.client import AsyncBatch, ClientError, Group, WorkFailed

REWARD = "facts_to_json"
INSTALL = "where the reward workers (or `openrl serve`) run: pip install ./recipes/rlvr, then start them again"


def require_reward(base_url: str | None) -> None:
    """Ends the program, with what to do, where the service's reward is missing or another than that of this folder."""
    facts = draw(random.Random(0)).facts
    replies = [json.dumps(facts), f"Here: {json.dumps(facts | {'age': '7'})}", "{}", "No."]
    try:
        with openrl.Client(base_url, patience_seconds=10) as client:
            scores = client.score(REWARD, replies, [{"facts": facts}] * len(replies))
    except WorkFailed as error:
        sys.exit(f"the service cannot score with {REWARD!r}: {error}\n{INSTALL}")
    if scores != [reward(reply, facts) for reply in replies]:
        sys.exit(f"the service's {REWARD!r} is another than {reward.__code__.co_filename}\n{INSTALL}")


async def roll_out(
    client: openrl.AsyncClient, sampler: tinker.SamplingClient, problems: list[Problem], size: int, options: Options
) -> AsyncBatch:
    """`size` replies to each problem, to be sampled and scored by the service."""
    prompts = [openrl.Prompt(problem.messages(), context={"facts": problem.facts}) for problem in problems]
    sampling = {"max_tokens": options.max_tokens, "temperature": 1.0}
    return await client.rollouts.create(
        prompts, sampler, group_size=size, sampling=sampling, reward=REWARD, on_failure="fail", progress=False
    )


async def learn(trainer: tinker.TrainingClient, groups: list[Group], learning_rate: float) -> int:
    """One update from these groups; returns how many rollouts it used."""
    data = openrl.to_datums(groups)
    if data:
        gradients = trainer.forward_backward(data, "importance_sampling")
        update = trainer.optim_step(types.AdamParams(learning_rate=learning_rate))
        await gradients
        await update
    return len(data)


async def unseen_reward(client: openrl.AsyncClient, sampler: tinker.SamplingClient, options: Options) -> float:
    rng = random.Random(0)
    problems = [draw(rng, unseen=True) for _ in range(UNSEEN_PROBLEMS)]
    batch = await roll_out(client, sampler, problems, 4, options)
    return fmean([reward async for group in batch for reward in group.rewards])


async def train(service: tinker.ServiceClient, options: Options, seed: int, report: Report) -> dict[str, Any]:
    """One training run from start to end. `report` gets a line after each step; the summary comes back."""
    async with openrl.AsyncClient(options.base_url) as client:
        trainer = await service.create_lora_training_client(
            options.base_model, rank=options.rank, seed=seed, train_unembed=False, user_metadata={"recipe": "rlvr"}
        )
        rng = random.Random(seed)
        sampler = await trainer.save_weights_and_get_sampling_client()
        unseen_first = await unseen_reward(client, sampler, options)
        rewards: list[float] = []
        for step in range(options.steps):
            began = time.monotonic()
            problems = [draw(rng) for _ in range(options.groups)]
            groups = await (await roll_out(client, sampler, problems, options.group_size, options)).results()
            sampled = time.monotonic()
            used = await learn(trainer, groups, options.lr * (1 - step / options.steps))
            sampler = await trainer.save_weights_and_get_sampling_client()
            rollouts = [rollout for group in groups for rollout in group.rollouts]
            rewards.append(fmean(rollout.reward for rollout in rollouts))
            report(
                {
                    "seed": seed,
                    "step": step,
                    "reward": rewards[-1],
                    "perfect": fmean(rollout.reward == 1.0 for rollout in rollouts),
                    "tokens": fmean(len(rollout.tokens) for rollout in rollouts),
                    "rollouts_used": used,
                    "sample_seconds": sampled - began,
                    "train_seconds": time.monotonic() - sampled,
                }
            )
        saved = await trainer.save_weights_for_sampler(f"rlvr-{seed}")
        unseen_last = await unseen_reward(client, sampler, options)
    return {"rewards": rewards, "unseen_first": unseen_first, "unseen_last": unseen_last, "weights": saved.path}


if __name__ == "__main__":
    options = parse_options(__doc__)
    try:
        require_reward(options.base_url)
        main(options, train)
    except ClientError as error:  # it says what is wrong and what to do
        sys.exit(str(error))
