"""How many tokens a second does the torch sample engine draw, against what else one could run on the same machine?

Each side is a process of its own on the same model, dtype and number of threads, and serves the same asks: prompts and
completions of mixed lengths, none ended early. The sides take turns, one at a time; a ratio is that of their tokens
per second in the same round, and the median over the rounds. The sides that serve requests as they come (this engine,
Transformers' continuous batching) get them over time: within the first third of what this engine takes for all. The
others have them all at the start.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from asks import Ask, asks, over_policies, probes
from driving import Load, showing
from flood import measure, two_tenants
from rich.progress import Progress
from rig import Report, add_report
from sides import Model, Served, serve, torch_side, vllm_side, worker_side
from transformers import AutoConfig

from openrl import config
from openrl.machine import usable_cores
from openrl.models.catalogue import resolve
from workers.model.devices import choose_dtype

MODELS = ("tiny", "smollm2-135m")
WITH_VLLM = frozenset({"smollm2-135m"})  #: heads of 16 as the tiny model's are none of vLLM's sizes
VLLM_SIDES = ("vllm", "worker", "bare")
POLICIES = 8
IN_FLIGHT = 32  #: requests at once, against vLLM
SPREAD = 1 / 3  #: of the time that all asks take: when the last one comes
FIRST_ROUND = 1  #: round 0 is there to warm up
WAITS = ("probed", "idle")  #: turns that tell how long one token takes
#: Ours and theirs, by turn.
RATIOS = {
    "static_ratio": ("over_time", "static"),
    "serial_ratio": ("over_time", "serial"),
    "cb_ratio": ("over_time", "batching"),
    "adapters_ratio": ("adapters", "over_time"),
    "vllm_cpu_ratio": ("in_flight", "vllm"),
    "vllm_worker_ratio": ("worker", "bare"),
    "vllm_worker_adapters_ratio": ("worker_adapters", "bare_adapters"),
    "vllm_worker_silent_ratio": ("worker", "bare_silent"),
    "vllm_worker_compiled_ratio": ("worker", "vllm"),
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side does in each round."""

    side: str
    asks: Callable[[int], list[Ask]]  #: of a round
    in_flight: int | None = None
    tells: bool = True  #: log-probabilities of what it draws, where it could leave them out


def plan(args: argparse.Namespace, model: str, vocab: int, seconds: float) -> dict[str, Turn]:
    """The turns of a round by name, for an engine that takes so many seconds for all asks."""
    spread = SPREAD * seconds

    def over_time(round_: int) -> list[Ask]:
        return asks(args.asks, vocab, round_=round_, spread=spread)

    def at_once(round_: int) -> list[Ask]:
        return asks(args.asks, vocab, round_=round_)

    def some_at_once(round_: int) -> list[Ask]:
        return at_once(round_)[: args.asks if model == "tiny" else args.serial_asks]

    def probed(round_: int) -> list[Ask]:
        return merged(over_time(round_), probes(args.probes, vocab, round_=round_, seconds=seconds))

    turns = {
        "over_time": Turn("openrl", over_time),
        "static": Turn("static", at_once),
        "adapters": Turn("openrl", lambda round_: over_policies(over_time(round_), POLICIES)),
        "batching": Turn("batching", over_time),
        "serial": Turn("serial", some_at_once),
        "in_flight": Turn("openrl", at_once, IN_FLIGHT),
        "vllm": Turn("vllm", at_once, IN_FLIGHT, tells=False),
        "worker": Turn("worker", at_once, IN_FLIGHT),
        "bare": Turn("bare", at_once, IN_FLIGHT),
        "bare_silent": Turn("bare", at_once, IN_FLIGHT, tells=False),
        "worker_adapters": Turn("worker", lambda round_: over_policies(at_once(round_), POLICIES), IN_FLIGHT),
        "bare_adapters": Turn("bare", lambda round_: over_policies(at_once(round_), POLICIES), IN_FLIGHT),
        "probed": Turn("openrl", probed),
        "idle": Turn("openrl", lambda round_: probes(args.probes, vocab, round_=round_, seconds=0), 1),
    }
    left_out = () if args.vllm_python and model in WITH_VLLM else (*VLLM_SIDES, "in_flight")
    return {name: turn for name, turn in turns.items() if not {name, turn.side}.intersection(left_out)}


def chosen(turns: dict[str, Turn], names: Sequence[str]) -> dict[str, Turn]:
    """Those named, or all where none is."""
    unknown = set(names) - turns.keys()
    if unknown:
        raise SystemExit(f"no turns here: {', '.join(sorted(unknown))}; there are {', '.join(turns)}")
    return {name: turn for name, turn in turns.items() if name in names or not names}


def merged(*loads: Sequence[Ask]) -> list[Ask]:
    """In the order in which they come."""
    return sorted((ask for load in loads for ask in load), key=lambda ask: ask.at)


def waited(turn: Turn, rounds: Sequence[Served]) -> list[float]:
    """How long those among the asks waited that wanted one token only, in milliseconds."""
    return [
        1e3 * wait
        for number, served in enumerate(rounds, FIRST_ROUND)
        for ask, wait in zip(turn.asks(number), served.waits, strict=True)
        if ask.max_tokens == 1
    ]


def ratio(ours: Sequence[Served], theirs: Sequence[Served]) -> float:
    """Of the tokens per second in each round, the median."""
    return statistics.median(mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True))


def figures(turns: Mapping[str, Turn], served: Mapping[str, Sequence[Served]]) -> dict[str, float]:
    """What the rounds come to."""
    found = {
        name: ratio(*(served[turn] for turn in pair)) for name, pair in RATIOS.items() if turns.keys() >= set(pair)
    }
    for name in turns:
        if name not in WAITS:
            found[f"{name}_tokens_per_s"] = statistics.median(each.rate for each in served[name])
            found[f"{name}_tokens_per_cpu_s"] = statistics.median(each.cpu_rate for each in served[name])
    if "probed" in turns:
        busy = waited(turns["probed"], served["probed"])
        found["ttft_p50_ms"], found["ttft_p95_ms"] = map(float, np.percentile(busy, (50, 95)))
    if "idle" in turns:
        found["ttft_idle_ms"] = statistics.median(waited(turns["idle"], served["idle"]))
    return found


def opened(side: str, model: Model, args: argparse.Namespace) -> AbstractContextManager[Load]:
    if side == "vllm":
        return vllm_side(model, args)
    if side in VLLM_SIDES:
        return worker_side(side, model, args, POLICIES)
    return torch_side(side, model, args, POLICIES if side == "openrl" else 0)


def measured(name: str, source: str, args: argparse.Namespace, progress: Progress) -> dict[str, float]:
    """Figures of one model."""
    folder = str(resolve(source, config.load().home))
    dtype = str(choose_dtype(args.dtype, torch.device("cpu"))).removeprefix("torch.")
    model = Model(folder, dtype, args.threads or usable_cores())
    vocab = AutoConfig.from_pretrained(folder).get_text_config().vocab_size
    served: dict[str, list[Served]] = defaultdict(list)
    turns = chosen(plan(args, name, vocab, seconds=0), args.turn)
    bar = progress.add_task(name, total=args.rounds * len(turns))
    with ExitStack() as closing:
        sides: dict[str, Load] = {}
        for side in dict.fromkeys(turn.side for turn in turns.values()):
            progress.update(bar, description=f"{name}: starting {side}")
            sides[side] = closing.enter_context(opened(side, model, args))
        if "openrl" in sides:
            first = serve(sides["openrl"], asks(args.asks, vocab))
            turns = chosen(plan(args, name, vocab, first.seconds), args.turn)
        for round_ in range(FIRST_ROUND, FIRST_ROUND + args.rounds):
            for turn, does in turns.items():
                progress.update(bar, description=f"{name}: {turn}, round {round_}")
                served[turn].append(serve(sides[does.side], does.asks(round_), does.in_flight, tells=does.tells))
                progress.advance(bar)
        progress.update(bar, description=name)
    return figures(turns, served)


def flooded(progress: Progress) -> dict[str, float]:
    """The figures of `flood.py`, of a server of its own."""
    bar = progress.add_task("flood", total=None)
    with two_tenants(argparse.Namespace(base_url=None, model=None)) as (server, key):
        found = measure(server, key, tell=lambda word: progress.update(bar, description=f"flood: {word}"))
    progress.update(bar, description="flood", total=1, completed=1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_report(parser)
    parser.add_argument("--model", action="append", help=f"name or folder, may be repeated (default: {MODELS})")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16 (default %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of each side; 0: one per core (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="(default %(default)s)")
    parser.add_argument("--asks", type=int, default=64, help="requests of a load (default %(default)s)")
    parser.add_argument(
        "--serial-asks",
        type=int,
        default=8,
        help="of them, those that are generated one by one; tiny: all (%(default)s)",
    )
    parser.add_argument("--probes", type=int, default=16, help="requests for one token only (default %(default)s)")
    parser.add_argument("--rank", type=int, default=16, help="of the adapters (default %(default)s)")
    parser.add_argument("--vllm-python", help="of an environment that has vLLM; without it vLLM is left out")
    parser.add_argument("--turn", action="append", default=[], help="one of a round, may be repeated (default: all)")
    parser.add_argument("--no-flood", dest="flood", action="store_false", help="leave out what flood.py measures")
    parser.add_argument("--limit", type=float, default=1200, help="seconds that a side may live (default %(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.model, args.rounds, args.asks, args.probes = args.model or ["tiny"], 1, 6, 3
    report = Report("sample", args)
    with showing() as progress:
        for source in args.model or MODELS:
            name = Path(source).name
            for figure, value in measured(name, source, args, progress).items():
                report[f"{figure}_{name}"] = value
        if args.flood and not args.quick:
            report |= flooded(progress)
    if not args.vllm_python:
        print("vllm_cpu_ratio: left out, as no --vllm-python was given")
    report.finish()


if __name__ == "__main__":
    main()
