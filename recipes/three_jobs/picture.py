"""Draws what the device did while one, two and three jobs ran, and how busy it was."""

from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from timeline import Span, Stretch, gaps

LANES = {"sample": 1, "pack": 0, "update": 0}  #: where each is drawn; what else runs is short
COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")
OTHERS = "0.5"  #: other tenants' runs are grey
NOTHING = "mistyrose"
HEIGHT = 0.8


@dataclass(frozen=True, slots=True)
class Phase:
    """So many jobs at once, and what the device did meanwhile."""

    runs: tuple[str, ...]  #: by number of the job
    window: Span
    stretches: list[Stretch]
    busy: float


def draw_picture(phases: list[Phase], seconds: float, path: Path) -> None:
    """A row for each phase with its first `seconds`, and beside it the share of all its time that the device was
    busy."""
    figure = Figure(figsize=(11, 1.1 + 1.35 * len(phases)), layout="constrained")
    rows = figure.subplots(len(phases), 2, width_ratios=(6, 1), squeeze=False)
    for (left, right), phase in zip(rows, phases, strict=True):
        draw_timeline(left, phase, seconds)
        draw_busy(right, phase.busy)
    for left, _ in rows[:-1]:
        left.set_xticklabels([])
    rows[-1][0].set_xlabel("seconds")
    rows[-1][1].set_xticks([0, 1], ["0", "100 %"])
    rows[0][1].set_title("device busy", fontsize="medium")
    most = max(len(phase.runs) for phase in phases)
    colours = [Patch(color=COLOURS[job % len(COLOURS)], label=f"job {job + 1}") for job in range(most)]
    colours.append(Patch(color=NOTHING, label="nothing runs"))
    figure.legend(handles=colours, loc="outside upper left", ncols=most + 1, frameon=False)
    figure.savefig(path, dpi=120)


def draw_timeline(axes: Axes, phase: Phase, seconds: float) -> None:
    idle = gaps([(each.began, each.ended) for each in phase.stretches], phase.window)
    for began, ended in idle:
        axes.axvspan(began - phase.window[0], ended - phase.window[0], color=NOTHING, linewidth=0)
    for stretch in phase.stretches:
        lane = LANES.get(stretch.doing)
        if lane is not None:
            draw_stretch(axes, phase, stretch, lane)
    axes.set(xlim=(0, seconds), ylim=(-0.5, 1.5), ylabel=f"{len(phase.runs)} job{'s' * (len(phase.runs) > 1)}")
    axes.set_yticks([0, 1], ["train", "sample"])


def draw_stretch(axes: Axes, phase: Phase, stretch: Stretch, lane: int) -> None:
    """A bar, cut into as many layers as there were jobs in it."""
    known = [COLOURS[phase.runs.index(run) % len(COLOURS)] for run in stretch.runs if run in phase.runs]
    colours = sorted(known, key=COLOURS.index) + [OTHERS] * (len(stretch.runs) - len(known) + stretch.others)
    layer = HEIGHT / max(1, len(colours))
    for at, colour in enumerate(colours):
        bottom = lane - HEIGHT / 2 + at * layer
        span = (stretch.began - phase.window[0], stretch.ended - stretch.began)
        axes.broken_barh([span], (bottom, layer), color=colour, linewidth=0)


def draw_busy(axes: Axes, busy: float) -> None:
    axes.barh([0.5], [busy], height=HEIGHT, color="0.35")
    inside = busy > 0.5
    where = {"ha": "right", "color": "white"} if inside else {"ha": "left", "color": "black"}
    axes.text(busy - 0.04 if inside else busy + 0.04, 0.5, f"{busy:.0%}", va="center", **where)
    axes.set(xlim=(0, 1), ylim=(-0.5, 1.5), yticks=[], xticks=[])
