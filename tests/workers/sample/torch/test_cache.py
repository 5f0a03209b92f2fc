import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.sample.torch.cache import Geometry, RowCache, Span, affordable_tokens, bucket

GEOMETRY = Geometry(2, 2, 4, torch.float32, torch.device("cpu"))


def cache(**bounds):
    return RowCache(GEOMETRY, **({"max_rows": 8, "cache_tokens": 1024} | bounds))


def prompts(rows, length):
    return torch.randn(rows, 2, length, 4), torch.randn(rows, 2, length, 4)


def test_prompts_are_kept_in_their_rows_without_what_they_were_padded_with():
    kept = cache()
    kept.rebuild({}, 3, 64)
    kept.prefill([Span(2, 0, 4), Span(None, 0, 6), Span(0, 0, 6)], 6)
    keys, values = prompts(3, 6)
    assert kept.update(keys, values, 0)[0] is keys
    kept.decode(torch.tensor([6, 0, 4]), 7)
    new_keys, new_values = prompts(3, 1)
    all_keys, all_values = kept.update(new_keys, new_values, 0)
    assert torch.equal(all_keys[0], torch.cat([keys[2], new_keys[0]], 1))
    assert torch.equal(all_keys[2, :, :5], torch.cat([keys[0, :, :4], new_keys[2]], 1))
    assert torch.equal(all_values[2, :, :5], torch.cat([values[0, :, :4], new_values[2]], 1))
    assert not all_keys[2, :, 5:].any() and not all_keys[1, :, 1:].any()


@pytest.mark.parametrize("rows", [(1, 2), (3, 0)])
def test_the_middle_of_a_prompt_sees_what_its_row_has_and_itself(rows):
    kept = cache()
    kept.rebuild({}, 4, 64)
    first, _ = prompts(2, 5)
    kept.prefill([Span(row, 0, 5) for row in rows], 5)
    kept.update(first, first, 1)
    more, _ = prompts(2, 3)
    assert kept.extend([Span(rows[0], 5, 8), Span(rows[1], 3, 5)], 3) == 8
    seen, _ = kept.update(more, more, 1)
    assert torch.equal(seen[0], torch.cat([first[0], more[0]], 1))
    assert torch.equal(seen[1, :, :5], torch.cat([first[1, :, :3], more[1, :, :2]], 1))


def test_rows_of_different_lengths_write_at_their_own_positions():
    kept = cache()
    kept.rebuild({}, 2, 64)
    kept.decode(torch.tensor([2, 7]), 8)
    keys, values = prompts(2, 1)
    all_keys, _ = kept.update(keys, values, 1)
    assert torch.equal(all_keys[0, :, 2], keys[0, :, 0])
    assert torch.equal(all_keys[1, :, 7], keys[1, :, 0])
    assert int((all_keys != 0).sum()) == 16


def test_a_new_buffer_has_the_rows_that_are_kept_in_their_new_places():
    kept = cache()
    kept.rebuild({}, 2, 64)
    keys, values = prompts(2, 10)
    kept.prefill([Span(0, 0, 10), Span(1, 0, 10)], 10)
    kept.update(keys, values, 0)
    kept.rebuild({2: 1}, 3, 128)
    assert torch.equal(kept._data[0, 0, 2, :, :10], keys[1])
    assert not kept._data[:, :, :2].any()
    assert (kept.rows, kept.length) == (3, 128)


def test_a_row_that_is_wiped_has_nothing_left_that_is_not_finite():
    kept = cache()
    kept.rebuild({}, 2, 64)
    kept._data[:] = float("nan")
    kept.wipe(1)
    assert not kept._data[:, :, 1].any()
    assert kept._data[:, :, 0].isnan().all()


@given(st.integers(1, 32), st.integers(1, 4096))
def test_a_bucket_holds_what_is_asked_within_the_bound(rows, length):
    bound = 8192
    if rows * length <= bound:
        got = bucket(rows, length, 32, bound)
        assert got[0] >= rows
        assert got[1] >= length
        assert got[0] * got[1] <= bound


def test_length_grows_in_few_steps():
    assert len({bucket(4, length, 32, 10**9)[1] for length in range(1, 4097)}) < 30


def test_cache_tokens_follow_memory_up_to_what_can_be_used():
    assert affordable_tokens(GEOMETRY, 1000, 10**9) == 1000
    assert affordable_tokens(GEOMETRY, 10**9, 128 * 4 * 500) == 500
