from array import array
from collections.abc import Sequence

import pytest

from workers.train.group.shares import shares
from workers.train.packing import Row


def rows(*texts: Sequence[int], batch: int = 0) -> dict[Row, bytes]:
    return {Row(batch, place, len(text)): array("i", text).tobytes() for place, text in enumerate(texts)}


def lengths(found: list[list[Row]]) -> list[list[int]]:
    return [[row.length for row in share] for share in found]


@pytest.mark.parametrize("folds", [True, False])
def test_every_row_is_in_exactly_one_share(folds: bool) -> None:
    texts = rows(*([n] * (3 + 7 * n % 11) for n in range(9))) | rows([1, 2], [3], batch=1)
    for count in (1, 2, 3, 20):
        found = shares(texts, count, folds=folds)
        assert len(found) == count
        assert sorted((row for share in found for row in share), key=str) == sorted(texts, key=str)


def test_shares_cost_about_the_same() -> None:
    one_long = rows([1] * 100, [2] * 10, [3] * 10, [4] * 10)
    assert lengths(shares(one_long, 2, folds=False)) == [[100], [10, 10, 10]]
    alike = rows(*([n] * 10 for n in range(8)))
    assert lengths(shares(alike, 4, folds=False)) == [[10, 10]] * 4


def test_fewer_rows_than_shares_leave_some_empty() -> None:
    found = shares(rows([1, 2, 3]), 3, folds=True)
    assert sorted(map(len, found)) == [0, 0, 1]


def test_rows_that_begin_alike_stay_together_where_passes_fold() -> None:
    prompts = [[7] * 30, [9] * 30]
    texts = rows(*([*prompts[place % 2], place, place] for place in range(8)))
    first, second = shares(texts, 2, folds=True)
    assert {row.place % 2 for row in first} == {0} and {row.place % 2 for row in second} == {1}


def test_what_rows_share_is_counted_once() -> None:
    prompt = [7] * 400
    many = rows(*([*prompt, place, place] for place in range(4)), *([50 + place] * 402 for place in range(2)))
    first, second = shares(many, 2, folds=True)
    assert len(first) == 4, "the four cost about 800 tokens with attention, the two others as many"
    assert len(second) == 2
    assert [len(share) for share in shares(many, 2, folds=False)] == [3, 3]
