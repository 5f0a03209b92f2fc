"""N concurrent RL jobs on any server that speaks the Tinker API; needs only the `tinker` SDK, 0.23 or newer.

Each job is a client of its own: per step it takes a sampling client of the newest weights, samples a group of
completions to each prompt, waits as long as a reward would take, and trains on all of them with importance sampling
and advantages normalised within the group. Every job takes one step that is not measured; then `ready` is told, and a
line on the standard input starts the measured steps. What is told at the end counts the tokens that came back from the
server: sampled, and trained on as the answers' log-probabilities say. The key is taken from TINKER_API_KEY.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from statistics import fmean, median, pstdev
from typing import Any

import tinker
from dialect import blocking, closed, many_threads, newest, sampled, settled, training
from lines import tell
from tinker import types

IDS = range(10, 500)  #: token ids that prompts are drawn from; every tokenizer has them
PARTS = ("step", "save", "sample", "train")


class Job:
    """One client and its run. Its prompts depend on its number alone."""

    def __init__(self, options: argparse.Namespace, number: int) -> None:
        self._service = tinker.ServiceClient(base_url=options.base_url)
        self._options, self._random = options, random.Random(number)
        self.seconds: dict[str, list[float]] = {}
        self.sampled_tokens = self.trained_tokens = 0

    async def begin(self) -> None:
        """Make the run and take one step that is not measured."""
        options = self._options
        self._trainer = await training(self._service, options.model, options.rank, unembed=options.unembed)
        await self.step()
        self.seconds = {part: [] for part in PARTS}
        self.sampled_tokens = self.trained_tokens = 0

    async def steps(self) -> None:
        for _ in range(self._options.steps):
            await self.step()
            tell("step")

    async def step(self) -> None:
        options = self._options
        marks = [time.perf_counter()]
        sampler = await newest(self._trainer)
        marks.append(time.perf_counter())
        prompts = [self._random.choices(IDS, k=options.prompt_tokens) for _ in range(options.prompts)]
        asked = [sampled(sampler, prompt, options.group, options.max_tokens) for prompt in prompts]
        answers = await asyncio.gather(*asked)
        marks.append(time.perf_counter())
        await asyncio.sleep(options.reward_latency)
        groups = zip(prompts, answers, strict=True)
        data = [datum for prompt, answer in groups for datum in group_data(prompt, answer.sequences)]
        marks.append(time.perf_counter())
        passed = self._trainer.forward_backward(data, "importance_sampling")
        stepped = self._trainer.optim_step(types.AdamParams(learning_rate=1e-4))
        trained = await settled(passed)
        await settled(stepped)
        marks.append(time.perf_counter())
        self._count(marks, answers, trained)

    def _count(self, marks: list[float], answers: Sequence[Any], trained: Any) -> None:
        spent = (marks[4] - marks[0], marks[1] - marks[0], marks[2] - marks[1], marks[4] - marks[3])
        for part, seconds in zip(PARTS, spent, strict=True):
            self.seconds.setdefault(part, []).append(seconds)
        self.sampled_tokens += sum(len(sequence.tokens) for answer in answers for sequence in answer.sequences)
        self.trained_tokens += sum(len(output["logprobs"].data) for output in trained.loss_fn_outputs)

    async def close(self) -> None:
        await closed(self._service)


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


async def run(options: argparse.Namespace) -> None:
    many_threads()
    jobs = [await blocking(Job, options, number) for number in range(options.jobs)]
    await asyncio.gather(*(job.begin() for job in jobs))
    tell("ready", steps=options.jobs * options.steps)
    await asyncio.to_thread(sys.stdin.readline)
    started = time.perf_counter()
    await asyncio.gather(*(job.steps() for job in jobs))
    seconds = time.perf_counter() - started
    p50 = {f"{part}_p50_s": median(s for job in jobs for s in job.seconds[part]) for part in PARTS}
    tokens = {name: sum(getattr(job, name) for job in jobs) for name in ("sampled_tokens", "trained_tokens")}
    tell("done", seconds=seconds, sdk=tinker.__version__, figures={**p50, **tokens})
    for job in jobs:
        await job.close()


def add_load(parser: argparse.ArgumentParser) -> None:
    """What every job does."""
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each job (default %(default)s)")
    parser.add_argument("--prompts", type=int, default=4, help="of a step (default %(default)s)")
    parser.add_argument("--group", type=int, default=4, help="completions of a prompt (default %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=16, help="(default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=16, help="of a completion (default %(default)s)")
    parser.add_argument("--rank", type=int, default=8, help="of the adapter (default %(default)s)")
    parser.add_argument("--unembed", action="store_true", help="adapt the unembedding too")
    parser.add_argument("--reward-latency", type=float, default=0.5, help="seconds (default %(default)s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True, help="the base model's name there")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default %(default)s)")
    add_load(parser)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
