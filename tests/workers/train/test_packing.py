from hypothesis import given
from hypothesis import strategies as st

from workers.train.packing import FULL_TOKENS, WASTE, Row, packs, passes

lengths = st.lists(st.integers(1, 700), max_size=40)
limits = st.integers(1, 2000)


@given(lengths, limits)
def test_packs_hold_every_batch_once_in_order_within_the_limit(tokens: list[int], limit: int) -> None:
    made = list(packs(tokens, limit))
    assert [number for pack in made for number in pack] == list(range(len(tokens)))
    assert all(len(pack) == 1 or sum(tokens[number] for number in pack) <= limit for pack in made)


@given(lengths, limits)
def test_passes_hold_every_row_once_within_the_limit_and_waste_little(sizes: list[int], limit: int) -> None:
    rows = [Row(0, place, length) for place, length in enumerate(sizes)]
    made = list(passes(rows, limit))
    assert sorted((row for taken in made for row in taken), key=lambda row: row.place) == rows
    for taken in made:
        longest, real = max(row.length for row in taken), sum(row.length for row in taken)
        assert len(taken) == 1 or longest * len(taken) <= limit
        small = real - taken[-1].length < FULL_TOKENS
        assert small or longest * len(taken) - real <= WASTE * longest * len(taken)


def test_equal_rows_share_one_pass() -> None:
    rows = [Row(batch, 0, 128) for batch in range(8)]
    assert list(passes(rows, 1024)) == [rows]
