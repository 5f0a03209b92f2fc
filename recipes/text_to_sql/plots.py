"""The curves of one or several runs, as one picture: loss, reward, and what came of it on unseen databases.

python recipes/text_to_sql/plots.py runs/seed-1 runs/seed-2 --to curve.png
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from journal import read
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STAGES = {"before": "before", "sft": "after SFT", "rl": "after RL"}
COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple")


def draw_curves(runs: list[Path], path: Path) -> None:
    lines = [read(run / "metrics.jsonl") for run in runs]
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _steps(left, lines, "sft", {"loss": "nats a token"}, "SFT: loss of the gold queries")
    _steps(middle, lines, "rl", {"match": "right rows", "compiles": "compiles"}, "RL: share of sampled replies")
    _unseen(right, lines)
    figure.savefig(path, dpi=110)


def _steps(axes: Axes, runs: list[list[dict[str, Any]]], stage: str, names: dict[str, str], title: str) -> None:
    """Every run that has the stage thin, their mean (over a few steps) thick."""
    axes.set(title=title, xlabel="step")
    axes.grid(alpha=0.3)
    curves = [curve for run in runs if (curve := [line for line in run if line["stage"] == stage])]
    if not curves:
        axes.text(0.5, 0.5, "not run", ha="center", transform=axes.transAxes)
        return
    for colour, (name, label) in zip(COLOURS, names.items(), strict=False):
        values = [[line[name] for line in curve] for curve in curves]
        for curve in values:
            axes.plot(range(1, len(curve) + 1), curve, color=colour, alpha=0.25, linewidth=1)
        shortest = min(map(len, values))
        mean = smooth(np.mean([curve[:shortest] for curve in values], axis=0))
        axes.plot(range(1, shortest + 1), mean, color=colour, linewidth=2, label=label)
    axes.legend()
    axes.set_ylim(0, None if stage == "sft" else 1)


def smooth(values: "np.ndarray[Any, Any]", reach: int = 2) -> "np.ndarray[Any, Any]":
    """Each value's mean with its neighbours."""
    return np.array([np.mean(values[max(0, i - reach) : i + reach + 1]) for i in range(len(values))])


def _unseen(axes: Axes, runs: list[list[dict[str, Any]]]) -> None:
    """Execution match by level, a bar for each stage; means over the runs."""
    found = [{line["after"]: line for line in run if line["stage"] == "unseen"} for run in runs]
    stages = [stage for stage in STAGES if all(stage in one for one in found)]
    names = ["match", *sorted(name for name in found[0][stages[0]] if name.startswith("match_level_"))]
    places, width = np.arange(len(names)), 0.8 / len(stages)
    for index, stage in enumerate(stages):
        heights = [np.mean([one[stage][name] for one in found]) for name in names]
        axes.bar(places + (index - (len(stages) - 1) / 2) * width, heights, width, label=STAGES[stage])
    axes.set_xticks(places, ["all", *(f"level {name.rsplit('_', 1)[1]}" for name in names[1:])])
    axes.set(title="unseen databases: right rows, greedy", ylim=(0, 1))
    axes.grid(alpha=0.3, axis="y")
    axes.legend()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders that run.py wrote")
    parser.add_argument("--to", type=Path, default=Path("curve.png"), help="the picture")
    chosen = parser.parse_args()
    draw_curves(chosen.runs, chosen.to)
