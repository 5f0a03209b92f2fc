import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.sample.torch.cache import Geometry, SlotCache, affordable_tokens, bucket

GEOMETRY = Geometry(2, 2, 4, torch.float32, torch.device("cpu"))


def cache(**bounds):
    return SlotCache(GEOMETRY, **({"max_rows": 8, "cache_tokens": 1024} | bounds))


def prompts(rows, length):
    return torch.randn(rows, 2, length, 4), torch.randn(rows, 2, length, 4)


def test_a_prompt_is_kept_in_each_of_its_rows():
    slots = cache()
    slots.reserve(0, 3, 10)
    slots.prefill(0, torch.tensor([1, 1, 0]), 4)
    keys, values = prompts(2, 6)
    assert slots.update(keys, values, 0)[0] is keys
    slots.decode(torch.tensor([4, 4, 4]), 5)
    new_keys, new_values = prompts(3, 1)
    all_keys, all_values = slots.update(new_keys, new_values, 0)
    assert torch.equal(all_keys, torch.cat([keys[[1, 1, 0], :, :4], new_keys], 2))
    assert torch.equal(all_values, torch.cat([values[[1, 1, 0], :, :4], new_values], 2))


def test_rows_of_different_lengths_write_at_their_own_positions():
    slots = cache()
    slots.reserve(0, 2, 10)
    slots.decode(torch.tensor([2, 7]), 8)
    keys, values = prompts(2, 1)
    all_keys, _ = slots.update(keys, values, 1)
    assert torch.equal(all_keys[0, :, 2], keys[0, :, 0])
    assert torch.equal(all_keys[1, :, 7], keys[1, :, 0])
    assert int((all_keys != 0).sum()) == 16


def test_growing_keeps_what_is_there_and_an_empty_cache_starts_anew():
    slots = cache()
    slots.reserve(0, 1, 10)
    slots.prefill(0, torch.tensor([0]), 10)
    keys, values = prompts(1, 10)
    slots.update(keys, values, 0)
    slots.reserve(1, 3, 100)
    assert slots._data.shape[2] >= 3
    assert slots._data.shape[4] >= 100
    slots.decode(torch.tensor([10]), 11)
    assert torch.equal(slots.update(*prompts(1, 1), 0)[0][:, :, :10], keys)
    slots.reserve(0, 1, 1000)
    assert slots._data.shape[2] == 1


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
