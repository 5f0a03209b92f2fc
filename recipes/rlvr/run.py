"""Reinforcement learning with a verifiable reward, through the Tinker API and nothing else.

A 135M model reads a sentence about a person and has to answer with one JSON object; `reward.py` checks the answer. The
loop is GRPO: sample a group of replies to each prompt, score them, push the better ones up and the worse ones down.
Where the model lives and who else uses it is the service's affair; this file needs no GPU and no torch.

    TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-... python recipes/rlvr/run.py --jobs 2
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tinker
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from reward import Problem, draw, reward
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from tinker import types

ENDS = 3  #: steps at either end whose mean is reported as the first and the last reward
UNSEEN_PROBLEMS = 8  #: answered before and after training


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    base_url: str | None
    base_model: str
    jobs: int
    steps: int
    groups: int
    group_size: int
    max_tokens: int
    lr: float
    rank: int
    seed: int
    out: Path


@dataclass(frozen=True, slots=True)
class Rollout:
    """One reply: its tokens, the log-probability of each when it was sampled, and what it scored."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    score: float


Report = Callable[[dict[str, Any]], None]
Train = Callable[[tinker.ServiceClient, Options, int, Report], Awaitable[dict[str, Any]]]

# --- sample and score -------------------------------------------------------------------------------------------------


async def roll_out(
    sampler: tinker.SamplingClient, tokenizer: Any, problems: list[Problem], size: int, params: types.SamplingParams
) -> list[list[Rollout]]:
    """`size` scored replies to each problem. All prompts are sent at once; the service decodes them together."""
    prompts = [
        tokenizer.apply_chat_template(problem.messages(), add_generation_prompt=True, return_dict=False)
        for problem in problems
    ]
    requests = [sampler.sample(types.ModelInput.from_ints(prompt), size, params) for prompt in prompts]
    answers = await asyncio.gather(*requests)
    return [
        [scored(tokenizer, problem, prompt, sequence) for sequence in answer.sequences]
        for problem, prompt, answer in zip(problems, prompts, answers, strict=True)
    ]


def scored(tokenizer: Any, problem: Problem, prompt: list[int], sequence: types.SampledSequence) -> Rollout:
    """The reply with its reward. Only the closing token is taken off the text: stray special tokens are the reply's."""
    tokens, logprobs = sequence.tokens, sequence.logprobs
    if logprobs is None:
        raise ValueError("the service returned a sample without log-probabilities; training needs them")
    spoken = tokens[:-1] if tokens and tokens[-1] == tokenizer.eos_token_id else tokens
    return Rollout(prompt, tokens, logprobs, reward(tokenizer.decode(spoken), problem.facts))


# --- learn ------------------------------------------------------------------------------------------------------------


def advantages(scores: list[float]) -> list[float]:
    """Each score against its own group, in standard deviations; nothing when all scored the same (nothing to learn)."""
    if max(scores) == min(scores):
        return []
    centred = np.array(scores) - np.mean(scores)
    return [float(value) for value in centred / centred.std()]


def datum(rollout: Rollout, advantage: float) -> types.Datum:
    """A rollout as a training example: position i reads token i and is to predict token i + 1.

    The loss is -sum(exp(new logprob - logprob) * advantage); positions that predict the prompt have advantage 0.
    """
    read = rollout.prompt + rollout.tokens[:-1]
    predict = rollout.prompt[1:] + rollout.tokens
    given = [0.0] * (len(rollout.prompt) - 1)
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "target_tokens": np.array(predict, dtype=np.int64),
        "logprobs": np.array(given + rollout.logprobs, dtype=np.float32),
        "advantages": np.array(given + [advantage] * len(rollout.tokens), dtype=np.float32),
    }
    tensors = {name: types.TensorData.from_numpy(array) for name, array in inputs.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(read), loss_fn_inputs=tensors)


async def learn(trainer: tinker.TrainingClient, groups: list[list[Rollout]], learning_rate: float) -> int:
    """One update from these groups; returns how many rollouts it used.

    Both requests are sent before either is awaited: the service runs them in order without waiting for us in between.
    """
    data = [
        datum(rollout, advantage)
        for group in groups
        for rollout, advantage in zip(group, advantages([rollout.score for rollout in group]), strict=False)
    ]
    if data:
        gradients = trainer.forward_backward(data, "importance_sampling")
        update = trainer.optim_step(types.AdamParams(learning_rate=learning_rate))
        await gradients
        await update
    return len(data)


# --- one run ----------------------------------------------------------------------------------------------------------


async def unseen_reward(sampler: tinker.SamplingClient, tokenizer: Any, params: types.SamplingParams) -> float:
    """Mean reward of replies about people and cities that training never shows; always the same problems."""
    rng = random.Random(0)
    problems = [draw(rng, unseen=True) for _ in range(UNSEEN_PROBLEMS)]
    groups = await roll_out(sampler, tokenizer, problems, 4, params)
    return fmean(rollout.score for group in groups for rollout in group)


async def train(service: tinker.ServiceClient, options: Options, seed: int, report: Report) -> dict[str, Any]:
    """One training run from start to end. `report` gets a line after each step; the summary comes back."""
    trainer = await service.create_lora_training_client(
        options.base_model, rank=options.rank, seed=seed, train_unembed=False, user_metadata={"recipe": "rlvr"}
    )
    tokenizer = trainer.get_tokenizer()
    rng = random.Random(seed)
    params = types.SamplingParams(max_tokens=options.max_tokens, temperature=1.0)
    sampler = await trainer.save_weights_and_get_sampling_client()  # the untrained adapter: the base model itself
    unseen_first = await unseen_reward(sampler, tokenizer, params)
    rewards: list[float] = []
    for step in range(options.steps):
        began = time.monotonic()
        problems = [draw(rng) for _ in range(options.groups)]
        groups = await roll_out(sampler, tokenizer, problems, options.group_size, params)
        sampled = time.monotonic()
        used = await learn(trainer, groups, options.lr * (1 - step / options.steps))  # falls to zero along a line
        sampler = await trainer.save_weights_and_get_sampling_client()  # the next step samples from the new weights
        rollouts = [rollout for group in groups for rollout in group]
        rewards.append(fmean(rollout.score for rollout in rollouts))
        report(
            {
                "seed": seed,
                "step": step,
                "reward": rewards[-1],
                "perfect": fmean(rollout.score == 1.0 for rollout in rollouts),
                "tokens": fmean(len(rollout.tokens) for rollout in rollouts),
                "rollouts_used": used,
                "sample_seconds": sampled - began,
                "train_seconds": time.monotonic() - sampled,
            }
        )
    saved = await trainer.save_weights_for_sampler(f"rlvr-{seed}")
    return {
        "rewards": rewards,
        "unseen_first": unseen_first,
        "unseen_last": await unseen_reward(sampler, tokenizer, params),
        "weights": saved.path,
    }


# --- several runs, and what one sees of them --------------------------------------------------------------------------


def reporter(progress: Progress, options: Options, seed: int) -> Report:
    """Shows a step on the run's progress bar (as a line where there is no terminal) and adds it to the run's JSONL."""
    bar = progress.add_task(f"seed {seed}", total=options.steps, reward="…", speed="…")
    log = options.out / f"seed-{seed}.jsonl"
    log.write_text("")
    began = time.monotonic()

    def report(line: dict[str, Any]) -> None:
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        speed = (line["step"] + 1) / (time.monotonic() - began)
        progress.update(bar, advance=1, reward=f"{line['reward']:.2f}", speed=f"{speed:.2f}")
        if not progress.console.is_terminal:
            print(f"seed {seed}  step {line['step'] + 1}  reward {line['reward']:.3f}  steps/s {speed:.3f}", flush=True)

    return report


async def train_all(service: tinker.ServiceClient, options: Options, train: Train) -> list[dict[str, Any]]:
    """All runs at once: while one of them scores or waits, the service works for the others."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("reward {task.fields[reward]}"),
        TextColumn("{task.fields[speed]} steps/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console()) as progress:
        seeds = range(options.seed, options.seed + options.jobs)
        runs = [train(service, options, seed, reporter(progress, options, seed)) for seed in seeds]
        return await asyncio.gather(*runs)


def draw_curve(curves: list[list[float]], path: Path) -> None:
    """The reward of every run, and their mean, over the steps."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = range(1, len(curves[0]) + 1)
    for curve in curves:
        axes.plot(steps, curve, color="tab:blue", alpha=0.35, linewidth=1)
    axes.plot(steps, np.mean(curves, axis=0), color="tab:blue", linewidth=2, label=f"mean of {len(curves)} run(s)")
    axes.set(xlabel="step", ylabel="mean reward on fresh prompts", ylim=(0, 1), title="Facts to JSON")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def parse_options(about: str | None = __doc__) -> Options:
    """What the command line says; the first line of `about` is what `--help` begins with."""
    parser = argparse.ArgumentParser(
        description=about.splitlines()[0] if about else None, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--base-url", help="of the service", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--base-model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="that the service serves")
    parser.add_argument("--jobs", type=int, default=1, help="runs trained at the same time, each with its own seed")
    parser.add_argument("--steps", type=int, default=20, help="updates of one run")
    parser.add_argument("--groups", type=int, default=4, help="prompts of one step")
    parser.add_argument("--group-size", type=int, default=8, help="replies to one prompt")
    parser.add_argument("--max-tokens", type=int, default=28, help="of one reply")
    parser.add_argument("--lr", type=float, default=5e-4, help="at the first step; it falls to zero along a line")
    parser.add_argument("--rank", type=int, default=16, help="of the LoRA adapter")
    parser.add_argument("--seed", type=int, default=0, help="of the first run: its prompts and its adapter")
    parser.add_argument("--out", type=Path, default=Path("runs/rlvr"), help="where metrics and the curve are written")
    return Options(**vars(parser.parse_args()))


def main(options: Options, train: Train = train) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tinker.ServiceClient(base_url=options.base_url) as service:
        runs = asyncio.run(train_all(service, options, train))
    curves = [run["rewards"] for run in runs]
    curve = options.out / "curve.png"
    draw_curve(curves, curve)
    print(f"jobs: {options.jobs}")
    print(f"steps: {options.steps}")
    print(f"reward_first: {fmean(fmean(rewards[:ENDS]) for rewards in curves):.3f}")
    print(f"reward_last: {fmean(fmean(rewards[-ENDS:]) for rewards in curves):.3f}")
    print(f"unseen_first: {fmean(run['unseen_first'] for run in runs):.3f}")
    print(f"unseen_last: {fmean(run['unseen_last'] for run in runs):.3f}")
    print(f"seconds: {time.monotonic() - began:.0f}")
    print(f"curve: {curve}")
    for run in runs:
        print(f"weights: {run['weights']}")


if __name__ == "__main__":
    main(parse_options())
