import pytest

from workers.train.budget import LOWERED, PATIENCE, SHARE, Budget


def test_a_share_of_what_is_free_is_used_and_what_the_pack_has_already_counts() -> None:
    free = [1000]
    budget = Budget(lambda: free[0])
    assert budget.room() == int(SHARE * 1000)
    free[0] = 600
    assert budget.room(held=400) == int(SHARE * 1000)


def test_a_fixed_budget_never_looks() -> None:
    budget = Budget(lambda: pytest.fail("looked"), fixed=77)
    assert (budget.room(), budget.ceiling) == (77, 77)


def test_after_a_failure_passes_are_planned_smaller_but_no_datum_is_refused_for_it() -> None:
    budget = Budget(lambda: 1000)
    budget.failed(400)
    assert budget.room() == LOWERED * 400
    assert budget.ceiling == int(SHARE * 1000)
    budget.failed(500)
    assert budget.room() == int(LOWERED * LOWERED * 400)


def test_a_lowered_budget_is_tried_in_full_again_ever_more_rarely() -> None:
    budget = Budget(lambda: 1000)
    for patience in (PATIENCE, 2 * PATIENCE, 4 * PATIENCE):
        budget.failed(400)
        for _ in range(patience - 1):
            budget.pack_ended()
        assert budget.room() == LOWERED * 400
        budget.pack_ended()
        assert budget.room() == int(SHARE * 1000)


@pytest.mark.parametrize(("kills", "ceiling"), [(True, 100), (False, 1000)])
def test_memory_that_others_have_for_now_is_tried_only_where_failing_is_safe(kills: bool, ceiling: int) -> None:
    free = [1000]
    budget = Budget(lambda: free[0], kills=kills)
    free[0] = 100
    assert budget.ceiling == int(SHARE * ceiling)
