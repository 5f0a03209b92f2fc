"""How many RL steps a second do N jobs at once get, and is the device kept busy while their rewards are computed?

Each job is a client of its own on the SDK: per step it takes a sampling client of the newest weights, samples a group
of completions to each prompt, waits as long as a reward would take, and trains on all of them with importance sampling
and advantages normalised within the group. With `--reference-url` another server that speaks the same SDK gets the same
load in turn, and the ratios say how much faster this one is.
"""

import argparse
import asyncio
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import Any

import tinker
from rig import Report, Served, add_common, serving
from tinker import types

IDS = range(10, 500)  #: token ids that prompts are drawn from; every tokenizer has them


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every job does."""

    steps: int
    prompts: int
    group: int
    prompt_tokens: int
    max_tokens: int
    rank: int
    unembed: bool
    reward_latency: float


@dataclass(slots=True)
class Times:
    """Seconds of every step, and of its parts."""

    step: list[float] = field(default_factory=list)
    save: list[float] = field(default_factory=list)
    sample: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)


class Job:
    def __init__(self, server: Served, load: Load, number: int) -> None:
        self._service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        self._model, self._load = server.model, load
        self._random = random.Random(number)
        self.times = Times()

    async def begin(self) -> None:
        """Make the run and take one step that is not measured."""
        self._trainer = await self._service.create_lora_training_client(
            self._model, rank=self._load.rank, seed=0, train_unembed=self._load.unembed
        )
        await self.step()
        self.times = Times()

    async def steps(self) -> None:
        for _ in range(self._load.steps):
            await self.step()

    async def step(self) -> None:
        load, times = self._load, self.times
        marks = [time.perf_counter()]
        sampler = await self._trainer.save_weights_and_get_sampling_client()
        marks.append(time.perf_counter())
        prompts = [self._random.choices(IDS, k=load.prompt_tokens) for _ in range(load.prompts)]
        params = types.SamplingParams(max_tokens=load.max_tokens, temperature=1.0)
        asked = [sampler.sample(types.ModelInput.from_ints(prompt), load.group, params) for prompt in prompts]
        answers = await asyncio.gather(*asked)
        marks.append(time.perf_counter())
        await asyncio.sleep(load.reward_latency)
        groups = zip(prompts, answers, strict=True)
        data = [datum for prompt, answer in groups for datum in group_data(prompt, answer.sequences)]
        marks.append(time.perf_counter())
        passed = self._trainer.forward_backward(data, "importance_sampling")
        stepped = self._trainer.optim_step(types.AdamParams(learning_rate=1e-4))
        await passed
        await stepped
        marks.append(time.perf_counter())
        times.step.append(marks[4] - marks[0])
        times.save.append(marks[1] - marks[0])
        times.sample.append(marks[2] - marks[1])
        times.train.append(marks[4] - marks[3])

    async def close(self) -> None:
        await self._service.close("success")


def group_data(prompt: list[int], sequences: Sequence[types.SampledSequence]) -> list[types.Datum]:
    """The completions of one prompt; the reward is the share of even token ids."""
    rewards = [fmean(token % 2 == 0 for token in sequence.tokens) for sequence in sequences]
    mean, spread = fmean(rewards), pstdev(rewards) or 1.0
    return [
        datum(prompt, sequence, (reward - mean) / spread) for sequence, reward in zip(sequences, rewards, strict=True)
    ]


def datum(prompt: list[int], sequence: types.SampledSequence, advantage: float) -> types.Datum:
    tokens, logprobs = list(sequence.tokens), sequence.logprobs
    assert logprobs is not None, "the server gave no log-probabilities"
    before = [0.0] * (len(prompt) - 1)
    inputs: dict[str, Any] = {
        "target_tokens": prompt[1:] + tokens,
        "logprobs": before + list(logprobs),
        "advantages": before + [advantage] * len(tokens),
    }
    return types.Datum(model_input=types.ModelInput.from_ints(prompt + tokens[:-1]), loss_fn_inputs=inputs)


@dataclass(frozen=True, slots=True)
class Use:
    """How much the device had done when its worker last told."""

    at: float  #: the worker's own clock, to tell one announcement from the next
    train_seconds: float
    sample_seconds: float
    packs: int


def use_of(server: Served) -> Use | None:
    """None for a server that does not tell."""
    request = urllib.request.Request(f"{server.url}/openrl/v1/workers", headers={"X-API-Key": server.api_key})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            uses = [worker["use"] for worker in json.load(answer) if worker["use"]]
    except urllib.error.HTTPError:
        return None
    return Use(
        max(use["seconds"] for use in uses),
        sum(use["train"]["seconds"] for use in uses),
        sum(use["sample"]["seconds"] for use in uses),
        sum(use["train"]["passes"] for use in uses),
    )


async def fresh_use(server: Served) -> Use | None:
    """As of now: waits for the next announcement."""
    first = use = await asyncio.to_thread(use_of, server)
    while first is not None and use is not None and use.at == first.at:
        await asyncio.sleep(0.02)
        use = await asyncio.to_thread(use_of, server)
    return use


async def measured(server: Served, load: Load, count: int) -> dict[str, float]:
    """Figures of `count` jobs at once."""
    jobs = [await asyncio.to_thread(Job, server, load, number) for number in range(count)]
    await asyncio.gather(*(job.begin() for job in jobs))
    before = await fresh_use(server)
    seconds = await timed(lambda: asyncio.gather(*(job.steps() for job in jobs)))
    after = await fresh_use(server)
    for job in jobs:
        await job.close()
    figures = {"steps_per_s": count * load.steps / seconds}
    for part in ("step", "save", "sample", "train"):
        figures[f"{part}_p50_s"] = median(value for job in jobs for value in getattr(job.times, part))
    if before is not None and after is not None:
        train = after.train_seconds - before.train_seconds
        sample = after.sample_seconds - before.sample_seconds
        figures["busy"] = (train + sample) / seconds
        figures["busy_train"], figures["busy_sample"] = train / seconds, sample / seconds
        figures["jobs_per_pack"] = count * load.steps / max(1, after.packs - before.packs)
    return figures


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def entered(report: Report, figures: dict[str, float], count: int, prefix: str = "") -> None:
    for name, value in figures.items():
        report[f"{prefix}{name}_{count}"] = value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--jobs", default="1,2,3,4,8", help="how many at once, one after the other (%(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each job (default %(default)s)")
    parser.add_argument("--prompts", type=int, default=4, help="of a step (default %(default)s)")
    parser.add_argument("--group", type=int, default=4, help="completions of a prompt (default %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=16, help="(default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=16, help="of a completion (default %(default)s)")
    parser.add_argument("--rank", type=int, default=8, help="of the adapter (default %(default)s)")
    parser.add_argument("--unembed", action="store_true", help="adapt the unembedding too")
    parser.add_argument("--reward-latency", type=float, default=0.5, help="seconds (default %(default)s)")
    parser.add_argument("--reference-url", help="another server, measured in turn under the same load")
    parser.add_argument("--reference-model", help="the base model's name there (default: as here)")
    args = parser.parse_args()
    counts = [1, 2] if args.quick else [int(count) for count in args.jobs.split(",")]
    load = Load(
        steps=2 if args.quick else args.steps,
        prompts=args.prompts,
        group=args.group,
        prompt_tokens=args.prompt_tokens,
        max_tokens=args.max_tokens,
        rank=args.rank,
        unembed=args.unembed,
        reward_latency=args.reward_latency,
    )
    report = Report("jobs", args)

    with serving(args, "tiny") as server:
        for count in counts:
            figures = asyncio.run(measured(server, load, count))
            entered(report, figures, count)
            if args.reference_url:
                model = args.reference_model or server.model
                reference = Served(args.reference_url.rstrip("/"), args.api_key or server.api_key, model)
                theirs = asyncio.run(measured(reference, load, count))
                entered(report, theirs, count, "ref_")
                report[f"ratio_steps_per_s_{count}"] = figures["steps_per_s"] / theirs["steps_per_s"]
                report[f"ratio_step_p50_s_{count}"] = figures["step_p50_s"] / theirs["step_p50_s"]
    report.finish()


if __name__ == "__main__":
    main()
