"""One job leaves the device idle while its rewards are computed; three fill it.

Runs one, then two, then three jobs of reinforcement learning at once, each with rewards that take some seconds of
somebody else's time, and draws from the service's own records what the device did meanwhile: who was in which pack, who
was sampled, and where nothing ran.

    pip install ./recipes/three_jobs && OPENRL_WORKER__REWARD_PROCESSES=3 openrl serve
    TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-... python recipes/three_jobs/run.py
"""

import argparse
import asyncio
import json
import math
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import httpx
import numpy as np
import tinker
from picture import Phase, draw_picture
from reward import draw, reward
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from timeline import Record, RecordIncomplete, figures
from tinker import types

REWARD = "slow_brevity"
REWARD_STEPS = 2.0  #: rewards take so many times what a step takes without them, where nobody says how long
FETCH_SECONDS = 20.0  #: how often the service's records are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    base_url: str
    base_model: str
    jobs: int
    steps: int
    groups: int
    group_size: int
    max_tokens: int
    lr: float
    rank: int
    reward_seconds: float | None  #: None: by what a step takes without
    local_reward: bool
    seed: int
    out: Path


Score = Callable[[list[str], float], Awaitable[list[float]]]
Report = Callable[[dict[str, Any]], None]

# --- a reward that takes its time -------------------------------------------------------------------------------------


async def score_here(texts: list[str], seconds: float) -> list[float]:
    await asyncio.sleep(seconds)
    return [reward(text) for text in texts]


def score_there(base_url: str) -> Score:
    """On the service's reward queue. Ends the program where the function is not there."""
    import openrl
    from openrl.client import ClientError

    client = openrl.Client(base_url)
    try:
        client.score(REWARD, ["a text"], params={"seconds": 0})
    except ClientError as error:
        sys.exit(
            f"the service cannot score with {REWARD!r}: {error}\nwhere the reward workers (or `openrl serve`) run: "
            "pip install ./recipes/three_jobs, then start them again; or wait for rewards here, with --local-reward"
        )

    async def score(texts: list[str], seconds: float) -> list[float]:
        return await asyncio.to_thread(client.score, REWARD, texts, None, {"seconds": seconds / len(texts)})

    return score


# --- one job ----------------------------------------------------------------------------------------------------------


class Job:
    """GRPO: sample groups of replies, wait for their rewards, push the better ones up and the worse ones down."""

    def __init__(self, service: tinker.ServiceClient, options: Options, score: Score, number: int) -> None:
        self._service, self._options, self._score, self.number = service, options, score, number
        self._rng = random.Random(options.seed * 1000 + number)

    async def begin(self) -> str:
        """Make the run and take a step whose rewards take no time; answers the run's id."""
        options = self._options
        self._trainer = await self._service.create_lora_training_client(
            options.base_model,
            rank=options.rank,
            seed=options.seed + self.number,
            train_unembed=False,
            user_metadata={"recipe": "three_jobs"},
        )
        self._tokenizer = self._trainer.get_tokenizer()
        self._sampler = await self._trainer.save_weights_and_get_sampling_client()
        await self._step(0.0)
        return str(self._trainer.get_info().model_id)

    async def step_seconds(self) -> float:
        """Of a step whose rewards take no time."""
        parts = await self._step(0.0)
        return parts["sample_seconds"] + parts["train_seconds"]

    async def run(self, reward_seconds: float, delay: float, report: Report) -> None:
        """`delay` comes first: jobs that begin at the same moment would wait at the same moment."""
        await asyncio.sleep(delay)
        for step in range(self._options.steps):
            seconds = reward_seconds * self._rng.uniform(0.5, 1.5)
            report({"job": self.number, "step": step, **await self._step(seconds)})

    async def _step(self, reward_seconds: float) -> dict[str, float]:
        options, marks = self._options, [time.monotonic()]
        params = types.SamplingParams(max_tokens=options.max_tokens, temperature=1.0)
        prompts = [self._tokenizer.encode(draw(self._rng)) for _ in range(options.groups)]
        asked = [self._sampler.sample(types.ModelInput.from_ints(each), options.group_size, params) for each in prompts]
        groups = [answer.sequences for answer in await asyncio.gather(*asked)]
        marks.append(time.monotonic())
        texts = [self._tokenizer.decode(reply.tokens) for group in groups for reply in group]
        scores = await self._score(texts, reward_seconds)
        marks.append(time.monotonic())
        by_group = np.array(scores).reshape(options.groups, options.group_size)
        data = [
            datum(prompt, reply, advantage)
            for prompt, group, row in zip(prompts, groups, by_group, strict=True)
            for reply, advantage in zip(group, (row - row.mean()) / (row.std() + 1e-6), strict=True)
        ]
        gradients = self._trainer.forward_backward(data, "importance_sampling")
        update = self._trainer.optim_step(types.AdamParams(learning_rate=options.lr))
        await gradients
        await update
        self._sampler = await self._trainer.save_weights_and_get_sampling_client()
        marks.append(time.monotonic())
        parts = zip(("sample_seconds", "reward_seconds", "train_seconds"), np.diff(marks), strict=True)
        return {"reward": fmean(scores)} | {name: float(seconds) for name, seconds in parts}


def datum(prompt: list[int], reply: types.SampledSequence, advantage: float) -> types.Datum:
    """A reply as a training example; positions that predict the prompt have advantage 0."""
    if reply.logprobs is None:
        raise ValueError("the service returned a sample without log-probabilities; training needs them")
    given = [0.0] * (len(prompt) - 1)
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "target_tokens": np.array(prompt[1:] + reply.tokens, dtype=np.int64),
        "logprobs": np.array(given + reply.logprobs, dtype=np.float32),
        "advantages": np.array(given + [advantage] * len(reply.tokens), dtype=np.float32),
    }
    tensors = {name: types.TensorData.from_numpy(array) for name, array in inputs.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(prompt + reply.tokens[:-1]), loss_fn_inputs=tensors)


# --- so many jobs at once ---------------------------------------------------------------------------------------------


async def run_phase(
    jobs: list[Job], reward_seconds: float, record: Record, report: Report
) -> tuple[Phase, dict[str, float]]:
    """All jobs at once from their first step to the end of the last, with what the service recorded of it."""
    runs = await asyncio.gather(*(job.begin() for job in jobs))
    began = await record.begin()
    reading = asyncio.create_task(keep_reading(record))
    delays = [job.number / len(jobs) * reward_seconds for job in jobs]
    await asyncio.gather(*(job.run(reward_seconds, delay, report) for job, delay in zip(jobs, delays, strict=True)))
    window = (began, await record.now())
    reading.cancel()
    await record.until(window[1])
    found = figures(record, window)
    mine = [each for each in record.stretches if each.ended > window[0] and each.began < window[1]]
    stretches = sorted(mine, key=lambda each: each.began)
    return Phase(tuple(runs), window, stretches, found["busy"]), found


async def fitting_seconds(job: Job) -> float:
    """For rewards that leave one job's device idle most of the time, and three jobs' device hardly ever."""
    await job.begin()
    return REWARD_STEPS * median([await job.step_seconds() for _ in range(3)])


async def keep_reading(record: Record) -> None:
    while True:
        with suppress(httpx.TransportError):  # what is missed is there the next time
            await record.fetch()
        await asyncio.sleep(FETCH_SECONDS)


async def run_all(options: Options, score: Score) -> tuple[list[Phase], list[dict[str, float]]]:
    """One job, then two, and so on."""
    phases: list[Phase] = []
    tables: list[dict[str, float]] = []
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    headers = {"X-API-Key": os.environ.get("TINKER_API_KEY", "")}
    with Progress(*columns, console=Console()) as progress, tinker.ServiceClient(base_url=options.base_url) as service:
        async with httpx.AsyncClient(base_url=options.base_url, headers=headers, timeout=60) as client:
            await Record(client).now()  # a service that keeps no timeline says so before anything is trained
            reward_seconds = options.reward_seconds
            if reward_seconds is None:
                reward_seconds = await fitting_seconds(Job(service, options, score, 0))
            for count in range(1, options.jobs + 1):
                jobs = [Job(service, options, score, number) for number in range(count)]
                record = Record(client)
                phase, found = await run_phase(jobs, reward_seconds, record, reporter(progress, options, count))
                seconds = phase.window[1] - phase.window[0]
                speed = count * options.steps / seconds * 60
                phases.append(phase)
                tables.append({"jobs": count, "seconds": seconds, "steps_per_minute": speed, **found})
                tables[-1] |= {"reward_seconds": reward_seconds, "left_out": record.left_out}
    return phases, tables


def reporter(progress: Progress, options: Options, count: int) -> Report:
    """Shows a step on the bar (as a line where there is no terminal) and adds it to steps.jsonl."""
    bar = progress.add_task(f"{count} job{'s' * (count > 1)}", total=count * options.steps)

    def report(line: dict[str, Any]) -> None:
        with (options.out / "steps.jsonl").open("a") as file:
            file.write(json.dumps({"jobs": count} | line) + "\n")
        progress.advance(bar)
        if not progress.console.is_terminal:
            print(
                f"jobs {count}  job {line['job'] + 1}  step {line['step'] + 1}  reward {line['reward']:.3f}", flush=True
            )

    return report


def write(options: Options, phases: list[Phase], tables: list[dict[str, float]]) -> None:
    with (options.out / "timeline.jsonl").open("w") as file:
        for phase in phases:
            for each in phase.stretches:
                times = {name: round(getattr(each, name) - phase.window[0], 4) for name in ("began", "ended")}
                members = [phase.runs.index(run) + 1 for run in each.runs if run in phase.runs]
                line = {"jobs": len(phase.runs), "worker": each.worker, "doing": each.doing, **times, "of": members}
                file.write(json.dumps(line) + "\n")
    asked = {name: value for name, value in asdict(options).items() if name not in ("base_url", "out")}
    told = {"options": asked, "figures": tables}
    (options.out / "figures.json").write_text(json.dumps(told, indent=2) + "\n")
    shortest = min(table["seconds"] for table in tables)
    draw_picture(phases, shortest / 2, options.out / "timeline.png")


def parse_options() -> Options:
    about = __doc__.splitlines()[0] if __doc__ else None
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    url = os.environ.get("TINKER_BASE_URL")
    parser.add_argument("--base-url", help="of the service", default=url, required=url is None)
    parser.add_argument("--base-model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="that the service serves")
    parser.add_argument("--jobs", type=int, default=3, help="the most at once; it begins with one")
    parser.add_argument("--steps", type=int, default=8, help="updates of each job")
    parser.add_argument("--groups", type=int, default=4, help="prompts of one step")
    parser.add_argument("--group-size", type=int, default=4, help="replies to one prompt")
    parser.add_argument("--max-tokens", type=int, default=16, help="of one reply")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate")
    parser.add_argument("--rank", type=int, default=16, help="of the LoRA adapter")
    help = "that a step's rewards take, give or take half (default: twice what a step takes without them)"
    parser.add_argument("--reward-seconds", type=float, default=argparse.SUPPRESS, help=help)
    parser.add_argument("--local-reward", action="store_true", help="wait for rewards here, not on the reward queue")
    parser.add_argument("--seed", type=int, default=0, help="of prompts, adapters and reward times")
    parser.add_argument("--out", type=Path, default=Path("runs/three_jobs"), help="where all that is written goes")
    options = Options(**{"reward_seconds": None, **vars(parser.parse_args())})
    if min(options.jobs, options.steps, options.groups, options.group_size, options.max_tokens) < 1:
        parser.error("--jobs, --steps, --groups, --group-size and --max-tokens of at least 1, please")
    if options.reward_seconds is not None and not 0 <= options.reward_seconds < math.inf:
        parser.error("--reward-seconds of at least 0, please")
    return options


def main(options: Options) -> None:
    score = score_here if options.local_reward else score_there(options.base_url)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "steps.jsonl").write_text("")
    began = time.monotonic()
    try:
        phases, tables = asyncio.run(run_all(options, score))
    except RecordIncomplete as error:
        sys.exit(f"the service's record of its devices has a hole: {error}")
    except httpx.HTTPStatusError as error:
        sys.exit(f"the service did not tell its timeline: {error}")
    write(options, phases, tables)
    for table in tables:
        for name in ("busy", "steps_per_minute", "runs_per_pack", "longest_gap_seconds"):
            print(f"{name}_{table['jobs']}: {table[name]:.3g}")
    print(f"seconds: {time.monotonic() - began:.0f}")
    print(f"picture: {options.out / 'timeline.png'}")


if __name__ == "__main__":
    main(parse_options())
