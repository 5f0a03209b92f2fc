"""Pictures of a research. Knows figures, not files."""

import io
from collections.abc import Callable, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autoresearch.store import Attempt, Confirmation

COLOURS = {"kept": "#2a7f3f", "dropped": "#b8860b"}
GREY, RED = "#9aa0a6", "#b3261e"

Draw = Callable[[Axes], None]


def svg(draw: Draw, width: float = 8.0, height: float = 3.4) -> str:
    """The same picture gives the same text."""
    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure.subplots())
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "autoresearch"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def png(*draws: Draw) -> bytes:
    """The first one wide, others beside it."""
    figure = Figure(figsize=(7 + 3 * (len(draws) - 1), 3.4), layout="constrained")
    ratios = [7, *[3] * (len(draws) - 1)]
    for draw, axes in zip(draws, figure.subplots(1, len(draws), squeeze=False, width_ratios=ratios)[0], strict=True):
        draw(axes)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def attempts(axes: Axes, tried: Sequence[Attempt], metric: str, mode: str) -> None:
    """Each attempt's mean, a small dot for each seed, the best mean so far, a cross where there are no figures."""
    ended = [attempt for attempt in tried if attempt.usable() and attempt.runs]
    for attempt in ended:
        for run in attempt.runs:
            axes.plot(attempt.number, run.metric, ".", color=GREY, alpha=0.7)
    for outcome, colour in COLOURS.items():
        these = [attempt for attempt in ended if attempt.outcome == outcome]
        axes.plot([one.number for one in these], [_mean(one) for one in these], "o", color=colour, label=outcome)
    best: list[float] = []
    better = max if mode == "max" else min
    for attempt in ended:
        best.append(better([*best[-1:], _mean(attempt)]))
    axes.step([attempt.number for attempt in ended], best, where="post", color="tab:blue", label="best so far")
    failed = [attempt.number for attempt in tried if attempt.outcome in ("crashed", "refused")]
    if failed:
        foot = [0.03] * len(failed)
        axes.plot(failed, foot, "x", color=RED, label="no figures", transform=axes.get_xaxis_transform())
    axes.set(xlabel="attempt (0 is the unchanged target)", ylabel=metric)
    _finish(axes)


def has_curves(tried: Sequence[Attempt]) -> bool:
    return any(run.curve for attempt in tried for run in attempt.runs)


def curves(axes: Axes, tried: Sequence[Attempt], winner: int | None, what: str) -> None:
    """The curve of every attempt, mean over seeds; the unchanged target's and the winner's stand out."""
    named = {winner: (COLOURS["kept"], f"attempt {winner}"), 0: ("black", "unchanged")}
    for attempt in sorted(tried, key=lambda one: one.number in named):
        columns = zip(*[run.curve for run in attempt.runs if run.curve], strict=False)
        curve = [sum(column) / len(column) for column in columns]
        colour, label = named.get(attempt.number, (GREY, None))
        axes.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=2 if label else 0.8, label=label)
    axes.set(xlabel="step", ylabel=f"{what}, mean over seeds")
    _finish(axes)


def confirmation(axes: Axes, found: Confirmation, metric: str) -> None:
    """The fresh runs: a line for each seed, from the unchanged target to the winner."""
    before, after = ({run.seed: run.metric for run in found.runs[number]} for number in (0, found.winner))
    both = sorted(before.keys() & after.keys())
    for seed in both:
        axes.plot([0, 1], [before[seed], after[seed]], "o-", color=GREY, linewidth=1)
    if both:
        means = [sum(side[seed] for seed in both) / len(both) for side in (before, after)]
        axes.plot([0, 1], means, "o-", color="tab:blue", linewidth=2, label="mean")
    axes.set(ylabel=metric, xlabel="fresh seeds", xlim=(-0.3, 1.3))
    _finish(axes)
    axes.set_xticks([0, 1], ["unchanged", f"attempt {found.winner}"])


def _mean(attempt: Attempt) -> float:
    return attempt.metric() or 0.0


def _finish(axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best", fontsize="small")
