"""Pictures of a research, as SVG text. Knows figures, not files."""

import io
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autoresearch.store import Attempt, Confirmation

COLOURS = {"kept": "#2a7f3f", "dropped": "#b8860b"}
GREY = "#9aa0a6"


def figures(attempts: Sequence[Attempt], metric: str, mode: str) -> str:
    """Each attempt's metric, a small dot for each seed, and the best mean so far."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    tried = [attempt for attempt in attempts if attempt.usable() and attempt.runs]
    for attempt in tried:
        colour = COLOURS.get(attempt.outcome or "", GREY)
        axes.plot(
            [attempt.number] * len(attempt.runs), [run.metric for run in attempt.runs], ".", color=GREY, alpha=0.7
        )
        axes.plot(attempt.number, attempt.metric() or 0.0, "o", color=colour)
    better = max if mode == "max" else min
    means = [attempt.metric() or 0.0 for attempt in tried]
    best = [better(means[: place + 1]) for place in range(len(means))]
    axes.step([attempt.number for attempt in tried], best, where="post", color="tab:blue", label="best so far")
    axes.set(xlabel="attempt (0 is the unchanged target)", ylabel=metric)
    axes.legend(loc="best")
    return _svg(figure, axes)


def curves(attempts: Sequence[Attempt], winner: int | None, what: str) -> str | None:
    """The curve of every attempt, mean over seeds: that of the unchanged target and of the winner stand out. None where
    no attempt has a curve."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    drawn = False
    for attempt in sorted(attempts, key=lambda one: one.number in (0, winner)):
        curve = _mean([run.curve for run in attempt.runs if run.curve])
        if not curve:
            continue
        drawn = True
        colour, width, name = {0: ("black", 2.0, "unchanged"), winner: ("#2a7f3f", 2.0, f"attempt {winner}")}.get(
            attempt.number, (GREY, 0.8, None)
        )
        axes.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=width, label=name)
    if not drawn:
        return None
    axes.set(xlabel="step", ylabel=f"{what}, mean over seeds")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best")
    return _svg(figure, axes)


def confirmation(found: Confirmation, metric: str) -> str:
    """The fresh runs: a line for each seed, from the unchanged target to the winner."""
    figure = Figure(figsize=(4, 3.2), layout="constrained")
    axes = figure.subplots()
    sides = [{run.seed: run.metric for run in found.runs[number]} for number in (0, found.winner)]
    for seed in sides[0].keys() & sides[1].keys():
        axes.plot([0, 1], [side[seed] for side in sides], "o-", color=GREY, linewidth=1)
    means = [sum(side.values()) / len(side) for side in sides if side]
    axes.plot(range(len(means)), means, "o-", color="tab:blue", linewidth=2, label="mean")
    axes.set(ylabel=metric, xlim=(-0.3, 1.3))
    axes.set_xticks([0, 1], ["unchanged", f"attempt {found.winner}"])
    axes.legend(loc="best")
    axes.grid(alpha=0.3)
    return _plain_svg(figure)


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    """Of rows of any length, up to the shortest one's end."""
    return [sum(column) / len(column) for column in zip(*rows, strict=False)]


def _svg(figure: Figure, axes: object) -> str:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # type: ignore[attr-defined]
    axes.grid(alpha=0.3)  # type: ignore[attr-defined]
    return _plain_svg(figure)


def _plain_svg(figure: Figure) -> str:
    """The same picture gives the same text."""
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "autoresearch"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
