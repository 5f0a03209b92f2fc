"""How many RL steps a second do N jobs at once get, and is the device kept busy while their rewards are computed?

The load is `rl_load.py`, in a process of its own. With `--reference-url` another server gets the same load in turn,
from the Python of an environment with the SDK that it speaks, and the ratios say how much faster this one is. Both
sides have to sample and to train the same number of tokens; the bench fails where they do not.
"""

import argparse
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from statistics import fmean

from driving import Side, add_reference, loading, reference, showing
from rich.progress import Progress
from rig import Report, Served, add_common, serving
from rl_load import add_load

SAME_WORK = 0.01  #: a reference that ends a completion early may miss this share of the tokens


@dataclass(frozen=True, slots=True)
class Use:
    """How much the device had done when its worker last told."""

    at: float  #: the worker's own clock, to tell one announcement from the next
    busy_seconds: float  #: anything ran; of several workers the mean
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
        fmean(use["busy_seconds"] for use in uses),
        sum(use["train"]["seconds"] for use in uses),
        sum(use["sample"]["seconds"] for use in uses),
        sum(use["train"]["passes"] for use in uses),
    )


def fresh_use(server: Served) -> Use | None:
    """As of now: waits for the next announcement."""
    first = use = use_of(server)
    while first is not None and use is not None and use.at == first.at:
        time.sleep(0.02)
        use = use_of(server)
    return use


def measured(side: Side, args: argparse.Namespace, jobs: int, progress: Progress) -> dict[str, float]:
    """Figures of `jobs` jobs at once."""
    bar = progress.add_task(f"{side.name}, {jobs} {'job' if jobs == 1 else 'jobs'}", total=None)
    with loading(side, "rl_load.py", ["--jobs", str(jobs), *load_options(args)], args.limit) as load:
        steps = load.until("ready")["steps"]
        progress.update(bar, total=steps)
        before = fresh_use(side.served)
        load.go()
        done = load.until("done", lambda: progress.advance(bar))
        after = fresh_use(side.served)
    seconds = done["seconds"]
    figures = {"steps_per_s": steps / seconds, **done["figures"]}
    return figures | device_use(before, after, seconds, steps)


def load_options(args: argparse.Namespace) -> list[str]:
    names = ("steps", "prompts", "group", "prompt_tokens", "max_tokens", "rank", "reward_latency")
    options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in names]
    return [*options, "--unembed"] if args.unembed else options


def device_use(before: Use | None, after: Use | None, seconds: float, steps: int) -> dict[str, float]:
    if before is None or after is None:
        return {}
    busy = (after.busy_seconds - before.busy_seconds) / seconds
    train = (after.train_seconds - before.train_seconds) / seconds
    sample = (after.sample_seconds - before.sample_seconds) / seconds
    per_pack = steps / max(1, after.packs - before.packs)
    return {"busy": busy, "busy_train": train, "busy_sample": sample, "jobs_per_pack": per_pack}


def compared(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """Ours by theirs."""
    names = ("steps_per_s", "step_p50_s", "sampled_tokens", "trained_tokens")
    return {name: ours[name] / theirs[name] for name in names}


def same_work(ratios: dict[str, float]) -> bool:
    return all(abs(ratios[name] - 1) <= SAME_WORK for name in ("sampled_tokens", "trained_tokens"))


def entered(report: Report, figures: dict[str, float], jobs: int, prefix: str = "") -> None:
    for name, value in figures.items():
        report[f"{prefix}{name}_{jobs}"] = value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--jobs", default="1,2,3,4,8", help="how many at once, one after the other (%(default)s)")
    add_load(parser)
    add_reference(parser)
    args = parser.parse_args()
    counts = [1, 2] if args.quick else [int(count) for count in args.jobs.split(",")]
    args.steps = 2 if args.quick else args.steps
    report = Report("jobs", args)
    unequal = []

    with serving(args, "tiny") as server, showing() as progress:
        there = reference(args, server)
        for jobs in counts:
            ours = measured(Side("openrl", server), args, jobs, progress)
            entered(report, ours, jobs)
            if there:
                theirs = measured(there, args, jobs, progress)
                ratios = compared(ours, theirs)
                entered(report, theirs, jobs, "ref_")
                entered(report, ratios, jobs, "ratio_")
                unequal += [] if same_work(ratios) else [jobs]
    report.finish()
    if unequal:
        raise SystemExit(f"the two sides did not do the same work with {unequal} jobs: compare their tokens")


if __name__ == "__main__":
    main()
