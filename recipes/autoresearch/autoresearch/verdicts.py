"""Which of two settings is better, and how sure that is. Numbers in, numbers out.

Two settings are run with the same seeds and, where the target tells them, on the same held-out problems. The
differences then form a table, seeds by problems, whose cells are no independent pairs: all cells of a seed share one
trained model, and all cells of a problem share its difficulty. Taking them as independent finds differences where there
are none. So:

- seeds and problems: both count as random, and the mean difference is held against the variation of both (the analysis
  of crossed readers and cases by Dorfman, Berbaum and Metz, degrees of freedom by Hillis). A small p speaks about new
  seeds and new problems, not about these alone.
- one seed, several problems: a paired t-test over problems; it says nothing about other seeds.
- seeds alone: a paired t-test over seeds.
- differences that do not vary at all: an exact sign test, since a t-test has nothing to divide by.

All are one-sided: is the second better than the first?
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Mode = Literal["max", "min"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """What one run came to: its metric, and each problem's score where the target tells it."""

    seed: int
    metric: float
    problems: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    test: str  #: in words
    gain: float  #: how much better the second is, in the metric's unit; below 0 where it is worse
    p: float  #: one-sided
    seeds: int
    problems: int  #: 0 where only the metric of each seed was compared


def compare(first: Sequence[Result], second: Sequence[Result], mode: Mode) -> Comparison:
    """Whether `second` is better. Raises ValueError where the two have not the same seeds and problems."""
    first, second = sorted(first, key=lambda run: run.seed), sorted(second, key=lambda run: run.seed)
    if [run.seed for run in first] != [run.seed for run in second] or not first:
        raise ValueError("the two were not run with the same seeds")
    sign = 1.0 if mode == "max" else -1.0
    table = _by_problem(first, second)
    if table is None:
        differences = np.array([later.metric - earlier.metric for earlier, later in zip(first, second, strict=True)])
        return _over(sign * differences, "seeds", len(first), 0)
    seeds, problems = table.shape
    if seeds == 1:
        return _over(sign * table[0], "problems", 1, problems)
    if problems == 1:
        return _over(sign * table[:, 0], "seeds", seeds, 1)
    return _crossed(sign * table)


def _by_problem(first: Sequence[Result], second: Sequence[Result]) -> Floats | None:
    """Differences, float64 [seeds, problems]; None where a run does not tell problems."""
    rows: list[list[float]] = []
    names: list[str] | None = None
    for earlier, later in zip(first, second, strict=True):
        if earlier.problems is None or later.problems is None:
            return None
        names = names or list(earlier.problems)
        if set(names) != set(earlier.problems) or set(names) != set(later.problems):
            raise ValueError("the runs were not about the same held-out problems")
        rows.append([later.problems[name] - earlier.problems[name] for name in names])
    return np.array(rows, dtype=np.float64) if names else None


def _over(differences: Floats, what: str, seeds: int, problems: int) -> Comparison:
    gain = float(differences.mean())
    if np.ptp(differences) == 0:
        return _alike(gain, len(differences), what, seeds, problems)
    p = float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)
    return Comparison(f"paired t-test over {len(differences)} {what}", gain, p, seeds, problems)


def _alike(gain: float, count: int, what: str, seeds: int, problems: int) -> Comparison:
    """Where all differences are the same: none, or all of one sign."""
    p = 1.0 if gain == 0 else float(stats.binomtest(count if gain > 0 else 0, count, alternative="greater").pvalue)
    return Comparison(f"sign test over {count} {what}", gain, p, seeds, problems)


def _crossed(table: Floats) -> Comparison:
    """A t-test of the mean with seeds and problems both random. Table: float64 [seeds, problems].

    The mean squares of seeds, of problems and of the rest say how much each makes the mean vary; that of seeds is taken
    to be no less than the rest's, which it is but for chance.
    """
    seeds, problems = table.shape
    gain = float(table.mean())
    if np.ptp(table) == 0:
        return _alike(gain, seeds, "seeds", seeds, problems)
    by_seed = table.mean(axis=1, keepdims=True)
    by_problem = table.mean(axis=0, keepdims=True)
    rest = float(((table - by_seed - by_problem + gain) ** 2).sum() / ((seeds - 1) * (problems - 1)))
    of_seeds = max(float(problems * ((by_seed - gain) ** 2).sum() / (seeds - 1)), rest)
    of_problems = max(float(seeds * ((by_problem - gain) ** 2).sum() / (problems - 1)) - rest, 0.0)
    if of_seeds == 0:  # every seed says exactly the same of each problem
        return _over(table[0], "problems", seeds, problems)
    variance = (of_seeds + of_problems) / (seeds * problems)
    freedom = (of_seeds + of_problems) ** 2 / (of_seeds**2 / (seeds - 1))
    p = float(stats.t.sf(gain / variance**0.5, freedom))
    return Comparison(f"crossed t-test over {seeds} seeds x {problems} problems", gain, p, seeds, problems)
