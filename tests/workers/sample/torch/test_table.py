import torch

from workers.sample.torch.cache import Geometry, SlotCache
from workers.sample.torch.rows import Job, Row
from workers.sample.torch.table import Table

GEOMETRY = Geometry(1, 1, 2, torch.float32, torch.device("cpu"))


def start(lab, table: Table, prompt: list[int]) -> Row:
    """A row whose keys are all its first token, added behind the others."""
    row = Job(lab.ask(prompt), decode=str, eos=()).row()
    table.reserve(1, len(prompt))
    table.cache.prefill(len(table), torch.tensor([0]), len(prompt))
    table.cache.update(*[torch.full((1, 1, len(prompt), 2), float(prompt[0]))] * 2, 0)
    table.add([row], [torch.tensor([float(prompt[0])])])
    return row


def test_the_last_row_takes_the_place_of_one_that_leaves(lab):
    table = Table(SlotCache(GEOMETRY, max_rows=4, cache_tokens=1024))
    first, second, third = (start(lab, table, [token] * 3) for token in (5, 6, 7))
    third.tokens += [1]
    assert table.remove([0]) == [first]
    assert table.rows == [third, second]
    assert [hidden.tolist() for hidden in table.hidden] == [[7.0], [6.0]]
    assert table.prompts() == {third.job.prefix: 0, second.job.prefix: 1}
    assert table.cache._data[0, 0, 0, 0, :3].tolist() == [[7.0, 7.0]] * 3
    assert table.remove([1]) == [second] and table.rows == [third]


def test_rows_that_leave_together_are_replaced_by_the_last_that_stay(lab):
    table = Table(SlotCache(GEOMETRY, max_rows=8, cache_tokens=1024))
    rows = [start(lab, table, [token] * 3) for token in range(5, 11)]
    for row in rows:
        row.tokens += [1]
    assert set(table.remove([4, 0, 2])) == {rows[0], rows[2], rows[4]}
    assert table.rows == [rows[3], rows[1], rows[5]]
    assert [hidden.tolist() for hidden in table.hidden] == [[8.0], [6.0], [10.0]]
    assert table.cache._data[0, 0, :3, 0, :3, 0].tolist() == [[8.0] * 3, [6.0] * 3, [10.0] * 3]
    assert set(table.remove([0, 1, 2])) == {rows[3], rows[1], rows[5]} and not table.rows


def test_the_longest_row_decides_what_the_batch_may_come_to_hold(lab):
    table = Table(SlotCache(GEOMETRY, max_rows=4, cache_tokens=1024))
    assert table.longest() == 0
    start(lab, table, [5] * 9), start(lab, table, [6] * 3)
    assert table.longest() == 9 + 8 - 1
