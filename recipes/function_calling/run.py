"""Supervised fine-tuning through the Tinker API and nothing else: a small model learns to call functions.

Each step draws requests with their right calls and teaches the model to give those (cross-entropy on the tokens of
the reply). Before, in between and after, the model is asked for what it was never taught: other wordings, other
functions. Where the model lives is the service's affair; this file needs no GPU and no torch.

    TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-... python recipes/function_calling/run.py
"""

import argparse
import asyncio
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tinker
from calls import MEASURES, Example, draw, held_out, score
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from tinker import types

ENDS = 5  #: steps at either end whose mean is told as the first and the last loss
MAX_TOKENS = 64  #: of a reply to a test
KEPT_SECONDS = 7 * 24 * 3600  #: how long the service keeps a state to resume from
TIPS = """\
examples:
    python recipes/function_calling/run.py --steps 10 --tests 12       # a first look: a minute or two
    python recipes/function_calling/run.py --resume                    # after it was interrupted

Loss that jumps up and stays there: halve --lr. Loss still falling at the end: more --steps. Loss near zero while tests
stay bad: the model learns by heart what it was shown; it needs more kinds of requests, not more steps.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    base_url: str | None
    base_model: str
    steps: int
    batch: int
    tests: int
    test_every: int
    lr: float
    rank: int
    seed: int
    out: Path
    resume: bool


# --- examples as tokens -----------------------------------------------------------------------------------------------


class Chat:
    """What the model's chat template makes of an example.

    A reply ends with the token that the template puts behind it: the model learns to say that token, and stops there.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "REPLY"}]
        closing = tokenizer.apply_chat_template(said, tokenize=False).rpartition("REPLY")[2]
        self.end = int(tokenizer.encode(closing, add_special_tokens=False)[0])

    def prompt(self, example: Example) -> list[int]:
        """The tokens up to where the reply begins. Templates that know of no thinking take no notice of it."""
        tokens: list[int] = self.tokenizer.apply_chat_template(
            example.messages(), add_generation_prompt=True, return_dict=False, enable_thinking=False
        )
        return tokens

    def datum(self, example: Example) -> types.Datum:
        """Position i reads token i and is to predict token i + 1; only positions that predict the reply have weight."""
        prompt = self.prompt(example)
        reply = [*self.tokenizer.encode(example.reply, add_special_tokens=False), self.end]
        weights = [0.0] * (len(prompt) - 1) + [1.0] * len(reply)
        inputs = {
            "target_tokens": types.TensorData.from_numpy(np.array(prompt[1:] + reply, dtype=np.int64)),
            "weights": types.TensorData.from_numpy(np.array(weights, dtype=np.float32)),
        }
        return types.Datum(model_input=types.ModelInput.from_ints(prompt + reply[:-1]), loss_fn_inputs=inputs)

    def text(self, tokens: list[int]) -> str:
        spoken = tokens[:-1] if tokens and tokens[-1] == self.end else tokens
        return str(self.tokenizer.decode(spoken))


# --- learn ------------------------------------------------------------------------------------------------------------


async def learn(trainer: tinker.TrainingClient, data: list[types.Datum], learning_rate: float) -> float:
    """One update; returns the loss per token of the replies before it.

    Both requests are sent before either is awaited: the service runs them in order without waiting for us in between.
    """
    gradients = trainer.forward_backward(data, "cross_entropy")
    update = trainer.optim_step(types.AdamParams(learning_rate=learning_rate))
    loss = (await gradients).metrics["loss:sum"]
    await update
    return float(loss / sum(sum(datum.loss_fn_inputs["weights"].data) for datum in data))


# --- test -------------------------------------------------------------------------------------------------------------


async def test(sampler: tinker.SamplingClient, chat: Chat, examples: list[Example]) -> dict[str, Any]:
    """How the model does on these. All prompts are sent at once, and answered with the likeliest tokens."""
    params = types.SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, stop=[chat.end])
    prompts = [types.ModelInput.from_ints(chat.prompt(example)) for example in examples]
    answers = await asyncio.gather(*(sampler.sample(prompt, 1, params) for prompt in prompts))
    replies = [chat.text(answer.sequences[0].tokens) for answer in answers]
    result: dict[str, Any] = {"replies": []}
    for kind, measures in MEASURES.items():
        pairs = [(reply, one) for reply, one in zip(replies, examples, strict=True) if one.kind == kind]
        scores = [score(reply, one) for reply, one in pairs]
        result |= {f"{kind}_{measure}": fmean(getattr(one, measure) for one in scores) for measure in measures}
        result["replies"] += [
            {"kind": kind, "request": one.request, "right": one.reply, "reply": r} for r, one in pairs
        ]
    return result | {"exact": fmean(result[f"{kind}_exact"] for kind in MEASURES)}


# --- one run ----------------------------------------------------------------------------------------------------------


async def begin(service: tinker.ServiceClient, options: Options) -> tuple[tinker.TrainingClient, int]:
    """A new adapter and step 0, or the one that an earlier run kept and the step at which it did."""
    if not options.resume:
        trainer = await service.create_lora_training_client(
            options.base_model,
            options.rank,
            options.seed,
            train_unembed=False,
            user_metadata={"recipe": "function_calling"},
        )
        return trainer, 0
    state = options.out / "state.json"
    if not state.exists():
        raise SystemExit(f"nothing to resume: no run has kept its state in {options.out} yet")
    kept = json.loads(state.read_text())
    if kept["step"] > options.steps:
        raise SystemExit(f"the run in {options.out} is at step {kept['step']}: --steps of at least that, please")
    return await service.create_training_client_from_state_with_optimizer(kept["path"]), int(kept["step"])


async def keep(trainer: tinker.TrainingClient, options: Options, step: int) -> None:
    """Has the service keep adapter and optimizer, and notes where, for --resume."""
    saved = await trainer.save_state(f"step-{step}", ttl_seconds=KEPT_SECONDS)
    draft = options.out / "state.json.new"
    draft.write_text(json.dumps({"step": step, "path": saved.path}))
    draft.replace(options.out / "state.json")  # whole or not at all


async def train(service: tinker.ServiceClient, options: Options) -> tuple[list[dict[str, Any]], str]:
    """One run from start to end; the metrics of its steps, and the name of the weights it ends with."""
    trainer, start = await begin(service, options)
    chat = Chat(trainer.get_tokenizer())
    unseen = held_out(options.tests)
    with Log(options, start) as log:
        for step in range(start, options.steps + 1):
            began, line = time.monotonic(), {"step": step}
            if step % options.test_every == 0 or step == options.steps:
                log.tell("testing")
                sampler = await trainer.save_weights_and_get_sampling_client()
                result = await test(sampler, chat, unseen)
                log.replies(step, result.pop("replies"))
                line |= result
                await keep(trainer, options, step)
            if step < options.steps:
                log.tell("learning")
                rng = random.Random(f"{options.seed} {step}")  # so that a resumed run goes on with the same examples
                data = [chat.datum(draw(rng)) for _ in range(options.batch)]
                line["loss"] = await learn(trainer, data, options.lr * (1 - step / options.steps))
            log.add(line | {"seconds": time.monotonic() - began})
    saved = await trainer.save_weights_for_sampler("function-calling")
    return log.lines, saved.path


# --- what one sees of it ----------------------------------------------------------------------------------------------


class Log:
    """Shows each step on a progress bar (as a line where there is no terminal) and adds it to `metrics.jsonl`."""

    def __init__(self, options: Options, start: int) -> None:
        self.out, self.file = options.out, options.out / "metrics.jsonl"
        earlier = self.file.read_text().splitlines()[:start] if start else []
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in earlier]
        self.file.write_text("".join(f"{line}\n" for line in earlier))
        texts = (TextColumn(f"{name} {{task.fields[{name}]}}") for name in ("loss", "exact"))
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            *texts,
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=Console())
        self.bar = self.progress.add_task("", total=options.steps, completed=start, loss="…", exact="…")

    def __enter__(self) -> "Log":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def tell(self, doing: str) -> None:
        self.progress.update(self.bar, description=doing)

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = {name: f"{line[name]:.2f}" for name in ("loss", "exact") if name in line}
        self.progress.update(self.bar, completed=line["step"], **shown)
        if not self.progress.console.is_terminal:
            print(f"step {line['step']}  " + "  ".join(f"{name} {value}" for name, value in shown.items()), flush=True)

    def replies(self, step: int, replies: list[dict[str, str]]) -> None:
        """What the model said when it was tested, to read."""
        lines = (json.dumps(reply) for reply in replies)
        (self.out / f"replies-{step}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def draw_curve(lines: list[dict[str, Any]], path: Path) -> None:
    """The loss of each step, and beside it what was right in each test, by kind."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    taught = [line for line in lines if "loss" in line]
    left.plot([line["step"] for line in taught], [line["loss"] for line in taught], color="tab:blue")
    left.set(xlabel="step", ylabel="loss per token of the replies", ylim=(0, None), title="Training")
    tested = [line for line in lines if "exact" in line]
    for kind in MEASURES:
        exact = [line[f"{kind}_exact"] for line in tested]
        right.plot([line["step"] for line in tested], exact, marker="o", label=kind.replace("_", " "))
    right.set(xlabel="step", ylim=(0, 1), ylabel="replies that are right", title="Tests")
    right.legend(loc="lower right")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Leaves the lines of the text as they are, and tells the defaults of options."""


def parse_options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__, epilog=TIPS, formatter_class=Help)
    parser.add_argument("--base-url", help="of the service", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--base-model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="that the service serves")
    parser.add_argument("--steps", type=int, default=120, help="updates of the adapter")
    parser.add_argument("--batch", type=int, default=8, help="requests of one step")
    parser.add_argument("--tests", type=int, default=90, help="requests to be tested with, of three kinds")
    parser.add_argument("--test-every", type=int, default=40, help="steps from test to test; also when state is kept")
    parser.add_argument("--lr", type=float, default=1e-3, help="at the first step; it falls to zero along a line")
    parser.add_argument("--rank", type=int, default=16, help="of the LoRA adapter")
    parser.add_argument("--seed", type=int, default=0, help="of the examples and the adapter")
    parser.add_argument("--out", type=Path, default=Path("runs/function_calling"), help="where metrics and curve go")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out from the state it kept last")
    options = Options(**vars(parser.parse_args()))
    if options.tests < len(MEASURES) or options.steps < 1:
        parser.error(f"--steps of at least 1 and --tests of at least {len(MEASURES)}, please: one of each kind")
    return options


def main(options: Options) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tinker.ServiceClient(base_url=options.base_url) as service:
        lines, weights = asyncio.run(train(service, options))
    draw_curve(lines, options.out / "curve.png")
    losses = [line["loss"] for line in lines if "loss" in line]
    first, last = lines[0], lines[-1]
    print(f"steps: {options.steps}")
    print(f"loss_first: {fmean(losses[:ENDS]):.3f}")
    print(f"loss_last: {fmean(losses[-ENDS:]):.3f}")
    for kind, measures in MEASURES.items():
        for measure in measures:
            name = f"{kind}_{measure}"
            print(f"{name}_first: {first[name]:.3f}")
            print(f"{name}_last: {last[name]:.3f}")
    print(f"seconds: {time.monotonic() - began:.0f}")
    print(f"curve: {options.out / 'curve.png'}")
    print(f"weights: {weights}")


if __name__ == "__main__":
    main(parse_options())
