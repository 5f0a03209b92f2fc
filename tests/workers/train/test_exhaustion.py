from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.train.exhaustion import finish
from workers.train.packing import Pass, Row


class Toy:
    """Holds so many rows at once, twice as many with recomputation. A failed pass adds a row all the same."""

    def __init__(self, holds: float, *, train: bool = True) -> None:
        self.holds, self.train = holds, train
        self.added: Counter[Row] = Counter()
        self.tried: list[Pass] = []
        self.planned: list[Row] = []

    def run(self, one: Pass) -> bool:
        self.tried.append(one)
        fine = len(one.rows) <= self.holds * (2 if one.recompute else 1)
        self.added.update(one.rows if fine else one.rows[:1])
        return fine

    def forget(self, batches: Collection[int]) -> None:
        for row in [row for row in self.added if row.batch in batches]:
            del self.added[row]

    def replan(self, failed: Pass, rows: Sequence[Row]) -> Iterable[Pass]:
        self.planned += rows
        return [Pass([row]) for row in rows]


def rows(*counts: int) -> list[Row]:
    return [Row(batch, place, 1) for batch, count in enumerate(counts) for place in range(count)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 9), st.sampled_from([0.5, 1, 2, 3, 100]))
def test_every_row_counts_once_whatever_failed_between(counts: list[int], width: int, holds: float) -> None:
    work, wanted = Toy(holds), rows(*counts)
    assert finish(work, [Pass(wanted[at : at + width]) for at in range(0, len(wanted), width)], work.replan) == {}
    assert work.added == Counter(wanted)


def test_a_failed_pass_is_halved_and_what_its_batches_had_is_run_again() -> None:
    first, second = rows(3, 2)[:3], rows(3, 2)[3:]
    work = Toy(2)
    finish(work, [Pass(first[:1]), Pass([first[1], *second]), Pass(first[2:])], work.replan)
    assert work.tried[2:] == [Pass(first[1:2]), Pass(second), Pass(first[:1]), Pass(first[2:])]
    assert work.planned == first[2:]


def test_rows_that_need_recomputation_keep_it_when_their_batch_is_run_again() -> None:
    work = Toy(0.5)
    assert finish(work, [Pass([row]) for row in rows(3)], work.replan) == {}
    assert sum(one.rows == rows(3)[:1] and not one.recompute for one in work.tried) == 1


def test_batches_of_other_passes_are_left_alone() -> None:
    first, second = rows(1, 2)[:1], rows(1, 2)[1:]
    work = Toy(1)
    finish(work, [Pass(first), Pass(second)], work.replan)
    assert [one for one in work.tried if first[0] in one.rows] == [Pass(first)]


@pytest.mark.parametrize("train", [True, False])
def test_a_row_that_fails_alone_ends_its_batch_only(train: bool) -> None:
    work = Toy(0, train=train)
    assert finish(work, [Pass(rows(2, 1))], work.replan) == {0: Row(0, 0, 1), 1: Row(1, 0, 1)}
    assert all(one.recompute is (train and at % 2 == 1) for at, one in enumerate(work.tried[2:]))
    assert not work.added
