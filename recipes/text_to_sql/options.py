"""What can be chosen on the command line, and what a preset chooses for a model."""

import argparse
import os
from dataclasses import asdict, dataclass
from pathlib import Path

EPILOG = """\
examples:
  run.py                                       SFT, then RL, then what came of it
  run.py --resume                              go on after a crash or Ctrl-C
  run.py --mode sft --out runs/sft             only teach the queries' form; prints the checkpoint it ends with
  run.py --mode rl --start tinker://… --steps 40 --out runs/rl
                                               only reward what runs right, from that checkpoint
  run.py --rewards local                       score replies in this process instead of on the service's reward queue
  run.py --data gretelai/synthetic_text_to_sql problems of a dataset, some of its schemas held out (see hub.py)
  run.py --base-url https://openrl.example.com --preset qwen3-4b
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Sizes for one model. Only the first was tuned; the others are where to start from."""

    base_model: str
    rank: int = 16
    sft_steps: int = 40
    sft_batch: int = 16
    sft_lr: float = 1e-3
    rl_steps: int = 60
    rl_lr: float = 1.5e-4
    groups: int = 16
    group_size: int = 8


PRESETS = {
    "smollm2-135m": Preset(base_model="HuggingFaceTB/SmolLM2-135M-Instruct"),
    "gemma3-270m": Preset(base_model="google/gemma-3-270m"),
    "gemma3-1b": Preset(base_model="google/gemma-3-1b-it", sft_lr=5e-4, rl_lr=5e-5),
    "gemma3-4b": Preset(base_model="google/gemma-3-4b-it", sft_lr=2e-4, rl_lr=2e-5, rank=32, group_size=16),
    "gemma4-e2b": Preset(base_model="google/gemma-4-E2B-it", sft_lr=2e-4, rl_lr=2e-5, rank=32, group_size=16),
    "qwen3-0.6b": Preset(base_model="Qwen/Qwen3-0.6B", sft_lr=5e-4, rl_lr=5e-5),
    "qwen3-4b": Preset(base_model="Qwen/Qwen3-4B-Instruct-2507", sft_lr=2e-4, rl_lr=2e-5, rank=32, group_size=16),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    base_url: str | None
    preset: str
    base_model: str
    mode: str
    start: str | None
    resume: bool
    rewards: str
    seed: int
    data: str | None
    data_lines: int
    rank: int
    sft_steps: int
    sft_batch: int
    sft_lr: float
    rl_steps: int
    rl_lr: float
    groups: int
    group_size: int
    loss: str
    temperature: float
    max_tokens: int
    weight_match: float
    weight_compiles: float
    weight_similarity: float
    eval_problems: int
    save_every: int
    out: Path

    @property
    def stages(self) -> tuple[str, ...]:
        return ("sft", "rl") if self.mode == "full" else (self.mode,)

    def steps(self, stage: str) -> int:
        return self.sft_steps if stage == "sft" else self.rl_steps

    def lasting(self) -> dict[str, object]:
        """What a run that goes on must have in common with its beginning."""
        free = {"base_url", "preset", "resume", "rewards", "save_every", "out"}
        return {name: value for name, value in asdict(self).items() if name not in free}


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter): ...


def parse_options(about: str, arguments: list[str] | None = None) -> Options:
    """What the command line says; `about` is what `--help` begins with."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--preset", default="smollm2-135m", choices=PRESETS)
    preset = PRESETS[first.parse_known_args(arguments)[0].preset]
    parser = argparse.ArgumentParser(description=about, epilog=EPILOG, formatter_class=Help)
    _add_what_and_where(parser)
    _add_sft(parser)
    _add_rl(parser)
    parser.set_defaults(**asdict(preset))
    return _checked(parser, parser.parse_args(arguments))


def _checked(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Options:
    values = vars(given)
    steps = values.pop("steps")
    if steps is not None and given.mode == "full":
        parser.error("--steps is of the one stage of --mode sft or rl; for both: --sft-steps and --rl-steps")
    if steps is not None:
        values[f"{given.mode}_steps"] = steps
    if given.group_size < 2:
        parser.error("--group-size must be 2 or more: a reply is judged against the others of its group")
    if given.save_every < 1 or given.eval_problems < 1:
        parser.error("--save-every and --eval-problems must be 1 or more")
    return Options(**values)


def _add_what_and_where(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what and where").add_argument
    add("--mode", default="full", choices=("sft", "rl", "full"), help="which stages to run; full is sft, then rl")
    add("--preset", default="smollm2-135m", choices=PRESETS, help="model and sizes; what is given besides goes first")
    add("--base-model", help="that the service serves")
    add("--base-url", default=os.environ.get("TINKER_BASE_URL"), help="of the service")
    add("--start", metavar="PATH", help="checkpoint (tinker://…/weights/…) to begin from; its rank counts then")
    add("--resume", action="store_true", help="go on with the run in --out, from its newest saved state")
    add("--save-every", type=int, default=10, help="steps between two saved states")
    add(
        "--out", type=Path, default=Path("runs/text_to_sql"), help="where metrics, answers, state and curve are written"
    )
    add("--seed", type=int, default=0, help="of the adapter and the training problems; not of the unseen ones")
    add("--data", metavar="NAME", help="dataset of the hub, or a .jsonl file, in place of problems that are made up")
    add("--data-lines", type=int, default=5000, help="of --data that are read")
    add("--rank", type=int, help="of the LoRA adapter")
    add("--eval-problems", type=int, default=400, help="unseen problems answered before, between and after the stages")
    add("--max-tokens", type=int, default=64, help="of one reply")
    add("--steps", type=int, help="of the one stage of --mode sft or rl")


def _add_sft(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("sft: cross-entropy on the gold queries").add_argument
    add("--sft-steps", type=int, help="updates; more teach more, and leave less to RL")
    add("--sft-batch", type=int, help="problems of one update")
    add("--sft-lr", type=float, help="at the first update; it falls to zero along a line")


def _add_rl(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("rl: GRPO on what the queries answer").add_argument
    add("--rl-steps", type=int, help="updates")
    add("--rl-lr", type=float, help="at the first update; it falls to zero along a line")
    add("--groups", type=int, help="problems of one update")
    add("--group-size", type=int, help="replies to one problem, each judged against the others")
    add("--loss", default="importance_sampling", choices=("importance_sampling", "ppo"), help="of the replies' tokens")
    add("--temperature", type=float, default=1.0, help="replies are drawn at while training; the unseen ones at 0")
    add("--rewards", default="queue", choices=("queue", "local"), help="where replies are scored")
    add("--weight-match", type=float, default=1.0, help="of the right rows, in the reward")
    add("--weight-compiles", type=float, default=0.1, help="of a query that compiles, in the reward")
    add("--weight-similarity", type=float, default=0.0, help="of likeness to the gold query's text, in the reward")
