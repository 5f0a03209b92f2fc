"""Does a server slow down as runs pile up that nobody uses any more?

The round trips of a client are timed on a fresh server; then many runs are made, trained one step, sampled from and
left, half of them by clients that close their session and half by clients that go away without a word; then the round
trips of a new client are timed again: at once, while the state of the last runs is written to the depot, and when that
is done (`--settle`). The load is `crowd_load.py`. With `--reference-url` the first round trips are taken from another
server too.
"""

import argparse
import time

from driving import Side, add_reference, loading, reference, showing
from rich.progress import Progress
from rig import Report, add_common, serving

RUNS_AT_ONCE = 200  #: that one process makes before it goes


def round_trips(side: Side, args: argparse.Namespace, progress: Progress, when: str) -> dict[str, float]:
    """Medians in milliseconds."""
    bar = progress.add_task(f"{side.name}, round trips {when}", total=None)
    options = ["trips", f"--rounds={args.rounds}", f"--rank={args.rank}"]
    with loading(side, "crowd_load.py", options, args.limit) as load:
        progress.update(bar, total=load.until("ready")["steps"])
        figures: dict[str, float] = load.until("done", lambda: progress.advance(bar))["figures"]
    return figures


def left(side: Side, args: argparse.Namespace, progress: Progress) -> None:
    bar = progress.add_task(f"{side.name}, runs made and left", total=args.runs)
    for start in range(0, args.runs, RUNS_AT_ONCE):
        options = ["leave", f"--runs={min(RUNS_AT_ONCE, args.runs - start)}", f"--rank={args.rank}"]
        with loading(side, "crowd_load.py", options, args.limit) as load:
            load.until("done", lambda: progress.advance(bar))


def entered(report: Report, when: str, first: dict[str, float], trips: dict[str, float]) -> None:
    """Round trips by the first ones, and the worst of them."""
    ratios = {name: trips[name] / first[name] for name in first}
    for name, ratio in ratios.items():
        report[f"{when}_{name}_p50_ms"] = trips[name]
        report[f"{when}_{name}_ratio"] = ratio
    report[f"{when}_ratio"] = max(ratios.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--runs", type=int, default=1000, help="made and left (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="of round trips (default %(default)s)")
    parser.add_argument("--rank", type=int, default=8, help="of the adapters (default %(default)s)")
    parser.add_argument(
        "--settle", type=float, default=15.0, help="seconds until the last round trips (default %(default)s)"
    )
    add_reference(parser)
    args = parser.parse_args()
    if args.quick:
        args.runs, args.rounds, args.settle = 20, 10, 0.0
    report = Report("crowd", args)

    with serving(args, "tiny") as server, showing() as progress:
        here, there = Side("openrl", server), reference(args, server)
        first = round_trips(here, args, progress, "at first")
        theirs = round_trips(there, args, progress, "at first") if there else {}
        left(here, args, progress)
        after = round_trips(here, args, progress, "at once")
        time.sleep(args.settle)
        settled = round_trips(here, args, progress, "settled")
    for name in first:
        report[f"{name}_p50_ms"] = first[name]
    for when, trips in ((f"after_{args.runs}", after), (f"settled_{args.runs}", settled)):
        entered(report, when, first, trips)
    for name, value in theirs.items():
        report[f"ref_{name}_p50_ms"] = value
        report[f"ratio_{name}_p50_ms"] = first[name] / value
    report.finish()


if __name__ == "__main__":
    main()
