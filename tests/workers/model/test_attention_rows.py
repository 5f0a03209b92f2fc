import pytest
import torch
from torch.nn import functional as F

from workers.model.attention_rows import APART, Shape, attention_trial, row_by_row, whole_blocks

SHAPE = Shape(4, 2, 8, torch.float32, torch.device("cpu"))


def attend(query, key, value, mask):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True).transpose(1, 2)


def dependent(query, key, value, mask):
    return attend(query, key, value, mask) + 1e-6 * key.shape[2]


def test_a_trial_tells_attention_that_depends_on_the_length_of_others():
    assert not attention_trial(dependent, SHAPE)


def test_rows_apart_get_what_they_get_alone():
    lengths, query = [5, 17, 40], torch.randn(3, 4, 1, 8)
    key, value = torch.randn(3, 2, 48, 8), torch.randn(3, 2, 48, 8)
    mask = torch.zeros(3, 48).masked_fill_(torch.arange(48) >= torch.tensor(lengths)[:, None], -torch.inf)[
        :, None, None
    ]
    together = row_by_row(dependent, query, key, value, mask, lengths)
    for row, length in enumerate(lengths):
        here, keys = slice(row, row + 1), slice(whole_blocks(length))
        alone = dependent(query[here], key[here, :, keys], value[here, :, keys], mask[here, ..., keys])
        assert torch.equal(together[here], alone)
    assert torch.allclose(row_by_row(attend, query, key, value, mask, lengths), attend(query, key, value, mask))


def test_lengths_are_whole_blocks():
    assert [whole_blocks(n) for n in (0, 1, 16, 17)] == [0, 16, 16, 32]


@pytest.mark.parametrize("together", [True, False])
def test_a_steady_pass_attends_apart_only_where_a_trial_asks_for_it(base, monkeypatch, together):
    monkeypatch.setattr("workers.model.attention.rows_are_alike", lambda *_: together)
    with base.steady([3, 4]):
        assert APART.get() == (None if together else [3, 4])
        assert base._current.alike is base.alike
    assert APART.get() is None
    assert base._current.alike is None
