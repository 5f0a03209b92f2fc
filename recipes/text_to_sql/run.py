"""Teaches a model to write SQL: first by example (SFT), then by running what it writes (GRPO).

A model reads a schema and a question and answers with one query. SFT shows it gold queries; RL then draws groups of
replies, runs each, and pushes those up that answer what was asked. Problems are made afresh at every step; what is
reported is about databases that training never shows. The loop is the Tinker API and nothing else, and needs no GPU.
"""

import asyncio
import random
import sys
import time
from collections import deque
from statistics import fmean
from typing import Any

import problems
import tinker
from chat import Chat
from hub import load
from journal import Journal
from options import Options, parse_options
from plots import draw_curves
from replies import Rollout, advantages, answered, reinforced, roll_out, scored, summed_up, supervised
from reward import reward
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from scoring import Scorer, scorer
from tinker import types

IN_FLIGHT = 3  #: updates of SFT that are sent ahead of the one that is waited for
ENDS = 5  #: steps at either end of RL whose mean is reported
KEPT_SECONDS = 30 * 24 * 3600  #: for which a saved state can be gone on from


class Run:
    """One training run: the trainer, and what stays the same while it learns."""

    def __init__(self, service: tinker.ServiceClient, options: Options, journal: Journal, progress: Progress) -> None:
        self.service, self.options, self.journal, self.progress = service, options, journal, progress
        self.scorer: Scorer = scorer(options.rewards, options.base_url)
        self.source = problems if options.data is None else load(options.data, most=options.data_lines)
        self.trainer: tinker.TrainingClient
        self.chat: Chat
        self._rest = tinker.RestClient(base_url=options.base_url)
        self._began = time.monotonic() - journal.state.seconds
        self._bars = {stage: progress.add_task(stage, total=options.steps(stage), told="") for stage in options.stages}

    async def all(self) -> None:
        """From the beginning, or from where the journal says it was."""
        await self._begin()
        await self._evaluate("before")
        for stage in self.options.stages:
            await (self._sft() if stage == "sft" else self._rl())
            await self._evaluate(stage)

    async def _begin(self) -> None:
        weights = self.journal.state.weights or self.options.start
        if weights:
            self.trainer = await self.service.create_training_client_from_state_with_optimizer(weights)
        else:
            self.trainer = await self.service.create_lora_training_client(
                self.options.base_model,
                rank=self.options.rank,
                seed=self.options.seed,
                train_unembed=False,
                user_metadata={"recipe": "text_to_sql"},
            )
        self.chat = Chat(self.trainer.get_tokenizer())

    # --- by example ---------------------------------------------------------------------------------------------------

    async def _sft(self) -> None:
        """Updates are sent some steps ahead: nothing of one depends on what comes back of another."""
        sent: deque[tuple[dict[str, Any], Any, Any]] = deque()
        for step in range(self._first("sft"), self.options.sft_steps):
            rng = random.Random(f"{self.options.seed} sft {step}")
            data = [supervised(self.chat, self.source.draw(rng)) for _ in range(self.options.sft_batch)]
            rate = self.options.sft_lr * (1 - step / self.options.sft_steps)
            gradients = self.trainer.forward_backward(data, "cross_entropy")
            update = self.trainer.optim_step(types.AdamParams(learning_rate=rate))
            tokens = sum(sum(datum.loss_fn_inputs["weights"].tolist()) for datum in data)
            sent.append(({"stage": "sft", "step": step, "lr": rate, "tokens": tokens}, gradients, update))
            while len(sent) > (0 if self._to_be_saved("sft", step + 1) else IN_FLIGHT):
                line, gradients, update = sent.popleft()
                loss = (await gradients).metrics["loss:sum"] / line["tokens"]
                await update
                self._tell(line | {"loss": loss}, f"loss {loss:.3f}")
            if self._to_be_saved("sft", step + 1):
                await self._save("sft", step + 1)

    # --- by what the queries answer -----------------------------------------------------------------------------------

    async def _rl(self) -> None:
        params = types.SamplingParams(
            max_tokens=self.options.max_tokens, temperature=self.options.temperature, stop=[self.chat.closing]
        )
        for step in range(self._first("rl"), self.options.rl_steps):
            began = time.monotonic()
            rng = random.Random(f"{self.options.seed} rl {step}")
            asked = [self.source.draw(rng) for _ in range(self.options.groups)]
            sampler = await self.trainer.save_weights_and_get_sampling_client()
            drawn = await roll_out(sampler, self.chat, asked, self.options.group_size, params)
            sampled = time.monotonic()
            groups = await scored(drawn, self.chat, asked, self.scorer)
            known = time.monotonic()
            rate = self.options.rl_lr * (1 - step / self.options.rl_steps)
            used = await self._learn(groups, rate)
            times = {
                "sample_seconds": sampled - began,
                "score_seconds": known - sampled,
                "train_seconds": time.monotonic() - known,
            }
            line = {"stage": "rl", "step": step, "lr": rate, **self._means(groups), "rollouts_used": used, **times}
            self._tell(line, f"reward {line['reward']:.2f}")
            if self._to_be_saved("rl", step + 1):
                await self._save("rl", step + 1)

    async def _learn(self, groups: list[list[Rollout]], rate: float) -> int:
        """One update from these groups; returns how many rollouts it used. Both requests are sent before either is
        awaited."""
        data = [
            reinforced(rollout, advantage)
            for group in groups
            for rollout, advantage in zip(group, advantages([self._reward(one) for one in group]), strict=False)
        ]
        if data:
            gradients = self.trainer.forward_backward(data, self.options.loss)
            update = self.trainer.optim_step(types.AdamParams(learning_rate=rate))
            await gradients
            await update
        return len(data)

    def _reward(self, rollout: Rollout) -> float:
        return reward(
            rollout.score,
            match=self.options.weight_match,
            compiles=self.options.weight_compiles,
            similarity=self.options.weight_similarity,
        )

    def _means(self, groups: list[list[Rollout]]) -> dict[str, float]:
        rollouts = [rollout for group in groups for rollout in group]
        return {
            "reward": fmean(self._reward(one) for one in rollouts),
            "match": fmean(one.score.match for one in rollouts),
            "compiles": fmean(one.score.compiles for one in rollouts),
            "similarity": fmean(one.score.similarity for one in rollouts),
            "tokens": fmean(len(one.tokens) for one in rollouts),
        }

    # --- what it comes to ---------------------------------------------------------------------------------------------

    async def _evaluate(self, after: str) -> None:
        """The same unseen problems each time, answered greedily."""
        if after in self.journal.state.evaluated:
            return
        began = time.monotonic()
        sampler = await self.trainer.save_weights_and_get_sampling_client()
        unseen = self.source.problems(self.options.eval_problems, 0, unseen=True)
        answers = await answered(sampler, self.chat, unseen, self.scorer, self.options.max_tokens)
        figures = summed_up(answers)
        self.journal.keep_unseen(after, answers)
        self.journal.add({"stage": "unseen", "after": after, **figures, "seconds": time.monotonic() - began})
        self.journal.save(seconds=self.seconds)
        self._say(f"unseen problems, {after}: match {figures['match']:.3f}, compiles {figures['compiles']:.3f}")

    # --- the journal --------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """That the run has taken, with what it took before it was taken up again."""
        return time.monotonic() - self._began

    def _first(self, stage: str) -> int:
        """The step to begin a stage with."""
        state, stages = self.journal.state, self.options.stages
        if state.stage and stages.index(stage) < stages.index(state.stage):
            done = self.options.steps(stage)
        else:
            done = state.step if state.stage == stage else 0
        self.progress.update(self._bars[stage], completed=done)
        return done

    def _to_be_saved(self, stage: str, done: int) -> bool:
        return done % self.options.save_every == 0 or done == self.options.steps(stage)

    async def _save(self, stage: str, done: int) -> None:
        """The checkpoint first, then the word that it is there, then the end of the one before."""
        last = done == self.options.steps(stage)
        saved = await self.trainer.save_state(f"{stage}-{done}", ttl_seconds=None if last else KEPT_SECONDS)
        before = self.journal.state
        stale = before.weights if before.stage == stage else None
        self.journal.save(stage=stage, step=done, weights=saved.path, seconds=self.seconds)
        if stale:
            await self._rest.delete_checkpoint_from_tinker_path(stale)

    def _tell(self, line: dict[str, Any], told: str) -> None:
        self.journal.add(line | {"at_seconds": round(self.seconds, 1)})
        self.progress.update(self._bars[line["stage"]], advance=1, told=told)
        if not self.progress.console.is_terminal:
            self._say(f"{line['stage']}  step {line['step'] + 1}/{self.options.steps(line['stage'])}  {told}")

    def _say(self, text: str) -> None:
        self.progress.console.print(text, highlight=False)
        sys.stdout.flush()


async def train(options: Options, journal: Journal) -> dict[str, str]:
    """All stages; returns where the weights lie, to sample from and to train on."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TextColumn("{task.fields[told]}"), TimeElapsedColumn(), console=Console()) as progress,
        tinker.ServiceClient(base_url=options.base_url) as service,
    ):
        run = Run(service, options, journal, progress)
        await run.all()
        saved = await run.trainer.save_weights_for_sampler(f"text-to-sql-{options.mode}-{options.seed}")
        return {"weights": saved.path, "seconds": f"{run.seconds:.0f}"}


def summary(options: Options, journal: Journal) -> dict[str, object]:
    """What a run ends with, for people and for programs."""
    lines = journal.lines()
    unseen = {line["after"]: line for line in lines if line["stage"] == "unseen"}
    rewards = [line["reward"] for line in lines if line["stage"] == "rl"]
    last = unseen[options.stages[-1]]
    block: dict[str, object] = {"mode": options.mode, "seed": options.seed}
    block |= {f"match_{after}": f"{line['match']:.3f}" for after, line in unseen.items()}
    if rewards:
        block |= {
            "reward_first": f"{fmean(rewards[:ENDS]):.3f}",
            "reward_last": f"{fmean(rewards[-ENDS:]):.3f}",
        }
    block |= {f"{name}_unseen": f"{last[name]:.3f}" for name in ("match", "match_error", "compiles", "similarity")}
    return block


def main() -> None:
    options = parse_options(__doc__ or "")
    journal = Journal(options.out, options.lasting(), resume=options.resume)
    try:
        ended = asyncio.run(train(options, journal))
    except KeyboardInterrupt:
        sys.exit(f"stopped; go on with: run.py --resume --out {options.out} and the same options")
    draw_curves([options.out], options.out / "curve.png")
    for name, value in (summary(options, journal) | ended).items():
        print(f"{name}: {value}")
    print(f"state: {journal.state.weights}")
    print(f"curve: {options.out / 'curve.png'}")


if __name__ == "__main__":
    main()
