import numpy as np
import pytest
from autoresearch.verdicts import Comparison, Result, compare
from numpy.typing import NDArray
from scipy import stats


def runs(table: NDArray[np.float64]) -> list[Result]:
    """Results from scores, float64 [seeds, problems]."""
    return [
        Result(seed, float(row.mean()), {f"p{place}": float(score) for place, score in enumerate(row)})
        for seed, row in enumerate(table)
    ]


def of_metrics(*metrics: float) -> list[Result]:
    return [Result(seed, metric) for seed, metric in enumerate(metrics)]


def judged(differences: NDArray[np.float64]) -> Comparison:
    return compare(runs(np.zeros_like(differences)), runs(differences), "max")


def test_seeds_alone_are_compared_by_a_paired_t_test() -> None:
    before, after = [0.2, 0.4, 0.3, 0.5], [0.3, 0.45, 0.42, 0.51]
    found = compare(of_metrics(*before), of_metrics(*after), "max")
    assert found.p == pytest.approx(stats.ttest_rel(after, before, alternative="greater").pvalue)
    assert found.gain == pytest.approx(0.07) and found.test == "paired t-test over 4 seeds"


def test_less_is_better_where_the_mode_is_min() -> None:
    before, after = of_metrics(1.0, 1.2, 1.1), of_metrics(0.8, 0.95, 0.9)
    assert compare(before, after, "min").gain == pytest.approx(0.21666, abs=1e-4)
    assert compare(before, after, "min").p < 0.05 < compare(before, after, "max").p


def test_one_seed_is_compared_over_its_problems() -> None:
    differences = np.array([[0.1, 0.3, -0.1, 0.2, 0.2]])
    found = judged(differences)
    assert found.p == pytest.approx(stats.ttest_1samp(differences[0], 0, alternative="greater").pvalue)
    assert found.test == "paired t-test over 5 problems"


def test_where_problems_do_not_matter_the_crossed_test_is_that_over_seeds() -> None:
    """Rows whose problems differ by the same pattern turned around: no problem stands out, every seed does."""
    pattern = np.array([0.1, -0.1, 0.1, -0.1])
    differences = np.array([0.3 + pattern, 0.1 - pattern, 0.35 + pattern, 0.05 - pattern])
    found = judged(differences)
    means = differences.mean(axis=1)
    assert found.p == pytest.approx(stats.ttest_1samp(means, 0, alternative="greater").pvalue)


def test_the_crossed_test_gives_the_figures_of_the_analysis_by_hand() -> None:
    differences = np.array([[1.0, 0, 1, 0], [1, 1, 1, -1], [0, 1, 1, 0]])
    found = judged(differences)
    seeds, problems, rest = 1 / 12, 12.5 / 12 + 0.5, 0.0
    by_seed, by_problem, mean = differences.mean(axis=1), differences.mean(axis=0), differences.mean()
    seeds = 4 * ((by_seed - mean) ** 2).sum() / 2
    problems = 3 * ((by_problem - mean) ** 2).sum() / 3
    rest = ((differences - by_seed[:, None] - by_problem + mean) ** 2).sum() / 6
    spread = max(seeds, rest) + problems - rest
    t = mean / (spread / 12) ** 0.5
    assert found.gain == pytest.approx(0.5)
    assert found.p == pytest.approx(stats.t.sf(t, spread**2 / (max(seeds, rest) ** 2 / 2)))


def rejected(seed_spread: float, problem_spread: float, gain: float = 0.0) -> tuple[float, float]:
    """How often p < 0.05, of 200 made-up comparisons: by our test, and where all cells are taken as independent."""
    rng = np.random.default_rng(1)
    ours = naive = 0
    for _ in range(200):
        table = gain + rng.normal(0, seed_spread, (4, 1)) + rng.normal(0, problem_spread, (1, 24))
        table = table + rng.normal(0, 0.5, (4, 24))
        ours += judged(table).p < 0.05
        naive += stats.ttest_1samp(table.ravel(), 0, alternative="greater").pvalue < 0.05
    return ours / 200, naive / 200


@pytest.mark.parametrize(("seed_spread", "problem_spread"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.2, 0.3)])
def test_no_more_false_finds_than_promised_whatever_varies(seed_spread: float, problem_spread: float) -> None:
    ours, _ = rejected(seed_spread, problem_spread)
    assert ours <= 0.09  # 0.05 of 200, and chance


def test_taking_cells_as_independent_would_find_what_is_not_there() -> None:
    ours, naive = rejected(0.3, 0.3)
    assert ours <= 0.09 and naive > 0.2


def test_a_gain_that_is_there_is_found() -> None:
    assert rejected(0.05, 0.1, gain=0.3)[0] > 0.9


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        (np.zeros((3, 4)), 1.0),
        (np.full((3, 4), 0.2), 1 / 8),
        (np.full((3, 4), -0.2), 1.0),
        (np.full((1, 6), 0.2), 1 / 64),
    ],
)
def test_differences_that_do_not_vary_are_counted_by_their_signs(differences: NDArray[np.float64], p: float) -> None:
    found = judged(differences)
    assert found.p == pytest.approx(p) and found.test.startswith("sign test")


def test_seeds_that_say_the_same_of_every_problem_count_once() -> None:
    row = np.array([0.3, 0.1, -0.1, 0.2])
    assert judged(np.array([row, row])).p == pytest.approx(stats.ttest_1samp(row, 0, alternative="greater").pvalue)


def test_the_order_of_runs_and_problems_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    before, after = runs(rng.random((3, 5))), runs(rng.random((3, 5)))
    turned = [Result(run.seed, run.metric, dict(reversed((run.problems or {}).items()))) for run in reversed(after)]
    assert compare(before, turned, "max") == compare(before, after, "max")


def test_other_seeds_or_other_problems_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="same seeds"):
        compare(of_metrics(1, 2), of_metrics(1, 2, 3), "max")
    with pytest.raises(ValueError, match="same held-out problems"):
        compare([Result(0, 1, {"a": 1})], [Result(0, 1, {"b": 1})], "max")
