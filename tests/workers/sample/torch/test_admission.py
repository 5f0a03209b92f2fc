from hypothesis import given
from hypothesis import strategies as st

from workers.sample.torch.admission import Vacancy, fitting, passes, shares


def vacancy(**changes):
    return Vacancy(**({"rows": 0, "length": 0, "max_rows": 8, "cache_tokens": 800} | changes))


def test_rows_are_bounded_by_number_and_by_cells():
    assert vacancy(rows=7).fits(100)
    assert not vacancy(rows=8).fits(1)
    assert not vacancy(rows=4, length=100).fits(200)
    assert vacancy(rows=3, length=100).fits(200)
    assert not vacancy(rows=1).fits(700)


@given(st.lists(st.integers(1, 100), max_size=40))
def test_the_cache_is_never_promised_twice(lengths):
    free, taken = vacancy(), []
    for length in lengths:
        if free.fits(length):
            free.take(length)
            taken.append(length)
    assert len(taken) <= fitting(max(taken, default=0), 8, 800)


@given(st.lists(st.integers(1, 500), max_size=12), st.integers(1, 600))
def test_parts_of_prompts_stay_in_the_budget_and_the_oldest_gets_half_of_it(left, budget):
    given_ = shares(left, budget)
    assert sum(given_) <= budget
    assert all(0 <= part <= whole for part, whole in zip(given_, left, strict=True))
    if left:
        assert given_[0] >= min(left[0], max(1, budget // 2))
        assert given_[0] == left[0] or sum(given_) == budget
    assert all(part in (0, whole) or part >= budget // 4 for part, whole in zip(given_[1:], left[1:], strict=True))


def test_a_short_prompt_goes_before_a_long_one_but_the_oldest_goes_on():
    assert shares([10_000, 5_000, 30, 20], 100) == [50, 0, 30, 20]
    assert shares([10_000, 60, 20], 100) == [50, 30, 20]
    assert shares([10_000], 100) == [100]
    assert shares([30, 5_000, 35], 100) == [30, 35, 35]
    assert shares([], 100) == []


def test_small_parts_are_left_for_the_next_step():
    assert shares([100] * 6, 512) == [100] * 5 + [0]


@given(st.lists(st.integers(1, 300), max_size=20), st.integers(1, 1000))
def test_each_prompt_is_in_one_pass_of_similar_lengths(lengths, budget):
    groups = passes(lengths, budget)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[index] for index in group)
        assert len(group) == 1 or longest * len(group) <= budget
        assert all(longest - lengths[index] <= max(16, longest // 4) for index in group)
