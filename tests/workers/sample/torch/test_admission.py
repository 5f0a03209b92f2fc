from hypothesis import given
from hypothesis import strategies as st

from workers.sample.torch.admission import Room, Wish, admit, fitting, passes


def room(**changes):
    return Room(**({"rows": 0, "length": 0, "max_rows": 8, "cache_tokens": 800, "prefill_tokens": 1000} | changes))


def test_requests_come_in_by_age_until_rows_are_full():
    assert admit([Wish(3, 50, 10), Wish(4, 50, 10), Wish(3, 50, 10), Wish(1, 50, 10)], room()) == [3, 4, 1]


def test_a_request_that_does_not_fit_holds_back_the_younger():
    assert admit([Wish(1, 700, 10), Wish(1, 10, 10)], room(rows=1, length=10)) == []


def test_a_request_without_rows_needs_no_room():
    assert admit([Wish(0, 0, 10)], room(rows=8, length=100)) == [0]


def test_a_request_whose_weights_are_missing_lets_others_pass():
    assert admit([Wish(1, 10, 10, ready=False), Wish(1, 10, 10)], room()) == [-1, 1]


def test_prompts_over_the_budget_wait_but_the_first_always_goes():
    assert admit([Wish(1, 10, 5000), Wish(1, 10, 10)], room()) == [1]
    assert admit([Wish(1, 10, 600), Wish(1, 10, 600), Wish(1, 10, 1)], room()) == [1]


def test_prompts_in_the_cache_are_free():
    assert admit([Wish(1, 10, 1000), Wish(2, 10, 0)], room()) == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 100), st.integers(0, 50)), max_size=12))
def test_the_cache_is_never_promised_twice(wishes):
    asked = [Wish(*wish) for wish in wishes]
    granted = admit(asked, room())
    taken = [(wish, count) for wish, count in zip(asked, granted, strict=False) if count > 0]
    rows, longest = sum(count for _, count in taken), max((wish.length for wish, _ in taken), default=0)
    assert rows <= fitting(longest, room())
    assert all(count <= wish.rows for wish, count in taken)


@given(st.lists(st.integers(1, 300), max_size=20), st.integers(1, 1000))
def test_each_prompt_is_in_one_pass_of_similar_lengths(lengths, budget):
    groups = passes(lengths, budget)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[index] for index in group)
        assert len(group) == 1 or longest * len(group) <= budget
        assert all(longest - lengths[index] <= max(16, longest // 4) for index in group)
