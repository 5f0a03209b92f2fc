import pytest
import torch

from workers.sample.torch.cache import Geometry, RowCache, Span
from workers.sample.torch.rows import Job, Row
from workers.sample.torch.strands import LEAST, Strand
from workers.sample.torch.table import Table

GEOMETRY = Geometry(1, 1, 2, torch.float32, torch.device("cpu"))
LENGTH = LEAST + 3


@pytest.fixture
def table():
    return Table(RowCache(GEOMETRY, max_rows=8, cache_tokens=1024))


def begin(lab, table: Table, token: int, rows: int = 1, length: int = LENGTH, **source) -> tuple[Strand, Job]:
    """A prompt in the cache whose keys and values are all its token."""
    job = Job(lab.ask([token] * length, num_samples=rows), decode=str, eos=())
    strand = Strand(None, job.tokens)
    table.begin(strand, rows, **source)
    table.cache.prefill([Span(strand.place, strand.filled, length)], length)
    table.cache.update(*[torch.full((1, 1, length, 2), float(token))] * 2, 0)
    strand.filled = length
    return strand, job


def join(table: Table, strand: Strand, job: Job) -> list[Row]:
    rows = [job.row(strand) for _ in range(job.request.num_samples)]
    table.place(strand, rows)
    for row in rows:
        row.tokens += [1]
    return rows


def start(lab, table: Table, token: int, rows: int = 1, **more) -> list[Row]:
    return join(table, *begin(lab, table, token, rows, **more))


def held(table: Table, length: int = LENGTH) -> list[float]:
    """What the rows of the batch have in the cache: one token each."""
    data = table.cache._data[0, :, : len(table), 0, :length]
    assert (data == data[:1, :, :1, :1]).all()
    return data[0, :, 0, 0].tolist()


def checked(table: Table) -> None:
    """Each strand is where it says, and what it has is there."""
    for place, strand in enumerate(table._strands):
        if strand is not None:
            assert strand.place == place
            assert (table.cache._data[0, :, place, 0, : strand.filled] == float(strand.prompt[0])).all()
    assert [row.strand.place for row in table.rows] == list(range(len(table)))


def resting(table: Table) -> list[int]:
    return [int(strand.prompt[0]) for strand in table._resting]


def test_samples_of_a_prompt_get_its_keys_and_lie_side_by_side(lab, table):
    rows = start(lab, table, 5, 3)
    assert table.rows == rows
    assert held(table) == [5.0] * 3
    checked(table)


def test_the_last_row_takes_the_place_of_one_that_leaves(lab, table):
    (first,), (second,), (third,) = (start(lab, table, token) for token in (5, 6, 7))
    assert table.remove([0]) == [first]
    assert table.rows == [third, second]
    assert held(table) == [7.0, 6.0]
    assert table.remove([1]) == [second] and table.rows == [third]
    assert resting(table) == [5, 6]
    checked(table)


def test_rows_that_leave_together_are_replaced_by_the_last_that_stay(lab, table):
    rows = [row for token in range(5, 11) for row in start(lab, table, token)]
    assert set(table.remove([4, 0, 2])) == {rows[0], rows[2], rows[4]}
    assert table.rows == [rows[3], rows[1], rows[5]]
    assert held(table) == [8.0, 6.0, 10.0]
    checked(table)
    assert set(table.remove([0, 1, 2])) == {rows[3], rows[1], rows[5]} and not table.rows
    checked(table)


def test_prompts_that_finish_in_another_order_than_they_began_keep_their_keys(lab, table):
    begun = [begin(lab, table, token, 2) for token in (5, 6, 7)]
    for strand, job in (begun[2], begun[0], begun[1]):
        join(table, strand, job)
        checked(table)
    assert held(table) == [7.0, 7.0, 5.0, 5.0, 6.0, 6.0]


def test_what_rests_makes_way_for_rows_the_one_unused_for_longest_first(lab, table):
    for token in range(5, 13):
        start(lab, table, token)
    table.remove(range(8))
    table.nearest(None, table._at(0).prompt)
    assert resting(table) == [6, 7, 8, 9, 10, 11, 12, 5]
    start(lab, table, 20, 6)
    checked(table)
    assert resting(table) == [12, 5]
    start(lab, table, 21, 2)
    checked(table)
    assert resting(table) == []
    assert held(table) == [20.0] * 6 + [21.0] * 2


def test_what_rests_grows_the_buffer_by_a_part_of_the_bound_only(lab, table):
    for token in range(5, 13):
        start(lab, table, token)
        table.remove([0])
        checked(table)
    assert table.cache.rows * table.cache.length <= 1024 // 2
    assert resting(table)[-3:] == [10, 11, 12]


def test_a_prompt_that_begins_like_one_at_rest_has_its_keys(lab, table):
    (row,) = start(lab, table, 5)
    table.remove([0])
    source, common = table.nearest(None, Job(lab.ask([5] * LENGTH + [6]), decode=str, eos=()).tokens)
    assert (source, common) == (row.strand, LENGTH)
    strand, _ = begin(lab, table, 5, length=LENGTH + 1, source=source, common=common)
    assert resting(table) in ([], [5])
    assert (table.cache._data[0, :, strand.place, 0, :LENGTH] == 5).all()
    checked(table)


def test_another_policy_has_nothing_in_common(lab, table):
    (row,) = start(lab, table, 5)
    assert table.nearest("p", row.strand.prompt) == (None, 0)


def test_short_strands_are_not_kept(lab, table):
    start(lab, table, 5, length=LEAST - 2)
    table.remove([0])
    assert resting(table) == []


def test_what_may_not_be_finite_is_wiped_and_not_kept(lab, table):
    (row,) = start(lab, table, 5)
    row.spoilt = True
    table.remove([0])
    assert resting(table) == []
    assert not table.cache._data.any()


def test_what_is_not_finite_stays_nowhere_not_even_where_a_token_was_just_fed(lab, table):
    (first,), _, (last,) = start(lab, table, 5), start(lab, table, 6), start(lab, table, 7)
    table.cache._data[..., 0, :, : first.strand.length + 1, :] = float("nan")
    first.spoilt = True
    table.remove([0])
    assert table.rows[0] is last
    assert torch.isfinite(table.cache._data).all()
    assert held(table) == [7.0, 6.0]
    checked(table)


def test_a_prompt_that_is_abandoned_leaves_nothing(lab, table):
    strand, _ = begin(lab, table, 5)
    table.cache._data[:, :, strand.place] = float("inf")
    table.abandon(strand)
    assert not table.cache._data.any() and not any(table._strands)


def test_strands_of_policies_that_are_unwanted_are_dropped(lab, table):
    start(lab, table, 5)
    table.remove([0])
    table.forget(lambda policy: policy is None)
    assert resting(table) == [] and not any(table._strands)


def test_rows_of_similar_length_are_moved_together(lab, table):
    rows = [
        row
        for token, length in ((5, 40), (6, 100), (7, 42), (8, 101))
        for row in start(lab, table, token, length=length)
    ]
    assert table.arrange(0) == [range(2), range(2, 4)]
    assert {int(row.strand.prompt[0]) for row in table.rows[:2]} == {6, 8}
    assert {int(row.strand.prompt[0]) for row in table.rows[2:]} == {5, 7}
    assert set(table.rows) == set(rows)
    checked(table)
    assert table.arrange(1 << 30) == [range(4)]
