import pytest

from workers.sample.torch import decode_pass
from workers.sample.torch.bands import arranged, sizes


@pytest.mark.parametrize(
    ("lengths", "worth", "expected"),
    [
        ([], 0, []),
        ([9], 0, [1]),
        ([100, 90, 71], 0, [3]),  # all close to the longest
        ([100, 69, 49], 0, [1, 2]),  # 49 is close to 69
        ([100, 60, 20], 0, [1, 1, 1]),
        ([100, 60, 20], 80, [1, 2]),  # 2 * 40 are worth it, 40 are not
        ([100, 60, 20], 81, [3]),  # 80 are not, and what 20 alone would save are 80 as well
        ([1000, *[50] * 9], 256, [1, 9]),
    ],
)
def test_a_band_begins_where_rows_are_shorter_and_enough_is_saved(lengths, worth, expected):
    assert sizes(lengths, worth) == expected


def test_rows_move_only_into_the_band_that_they_are_not_in():
    bands, moves = arranged([10, 100, 95, 12, 90], 0)
    assert bands == [range(3), range(3, 5)]
    assert moves == {0: 4, 4: 0}
    assert arranged([100, 95, 90, 12, 10], 0) == (bands, {})


@pytest.mark.parametrize("lengths", [[5, 50, 500, 6, 51, 501, 7, 52], [1, 2, 4, 8, 16, 32, 64, 128], [3] * 5, []])
def test_after_the_moves_every_row_is_once_in_the_band_of_its_like(lengths):
    bands, moves = arranged(lengths, 0)
    after = [lengths[moves.get(place, place)] for place in range(len(lengths))]
    falling = sorted(lengths, reverse=True)
    assert [place for band in bands for place in band] == list(range(len(lengths)))
    for band in bands:
        assert sorted((after[place] for place in band), reverse=True) == falling[band.start : band.stop]


def test_rows_of_any_length_get_the_same_tokens_in_bands(lab, monkeypatch):
    asks = [lab.ask(range(3, 3 + n), 12, temperature=0.0) for n in (4, 60, 5, 58, 30, 6, 90)]
    asks.append(lab.ask(range(3, 20), 30, seed=7, num_samples=2))
    base = lab.base()
    monkeypatch.setitem(decode_pass.WORTH, True, 1 << 40)
    apart = lab.run(lab.engine(base), *asks)
    monkeypatch.setitem(decode_pass.WORTH, True, 0)
    engine = lab.engine(base)
    together = lab.run(engine, *asks)
    for one, other in zip(apart, together, strict=True):
        for mine, theirs in zip(one.sequences, other.sequences, strict=True):
            assert lab.tokens(mine) == lab.tokens(theirs)


def test_a_batch_of_short_rows_does_not_read_what_a_long_one_has(lab, monkeypatch):
    monkeypatch.setitem(decode_pass.WORTH, True, 0)
    seen, banded = [], decode_pass.banded
    monkeypatch.setattr(decode_pass, "banded", lambda some: seen.append([b.keys for b in some]) or banded(some))
    engine = lab.engine()
    lab.run(engine, lab.ask(range(3, 90), 3), lab.ask([5, 6], 3), lab.ask([7, 8], 3))
    assert seen[-1] == [96, 16]
