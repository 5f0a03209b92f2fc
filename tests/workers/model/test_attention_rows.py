import torch
from torch.nn import functional as F

from workers.model.attention_rows import BANDS, Band, Shape, attention_trial, banded, each_alone, in_bands, whole_blocks

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
    together = in_bands(dependent, query, key, value, mask, each_alone(lengths))
    for row, length in enumerate(lengths):
        here, keys = slice(row, row + 1), slice(whole_blocks(length))
        alone = dependent(query[here], key[here, :, keys], value[here, :, keys], mask[here, ..., keys])
        assert torch.equal(together[here], alone)
    assert torch.allclose(
        in_bands(attend, query, key, value, mask, each_alone(lengths)), attend(query, key, value, mask)
    )


def test_lengths_are_whole_blocks():
    assert [whole_blocks(n) for n in (0, 1, 16, 17)] == [0, 16, 16, 32]


def test_a_band_reads_as_many_keys_as_it_needs():
    bands = [Band(slice(0, 1), 48), Band(slice(1, 3), 32)]
    lengths, query = [40, 17, 30], torch.randn(3, 4, 1, 8)
    key, value = torch.randn(3, 2, 48, 8), torch.randn(3, 2, 48, 8)
    mask = torch.zeros(3, 48).masked_fill_(torch.arange(48) >= torch.tensor(lengths)[:, None], -torch.inf)
    mask, seen = mask[:, None, None], []

    def noting(query, key, value, mask):
        seen.append((len(query), key.shape[2], value.shape[2], mask.shape[3]))
        return attend(query, key, value, mask)

    banded_out = in_bands(noting, query, key, value, mask, bands)
    assert seen == [(1, 48, 48, 48), (2, 32, 32, 32)]
    assert torch.allclose(banded_out, attend(query, key, value, mask))


def test_bands_hold_inside_only_and_one_band_is_none():
    bands = [Band(slice(0, 1), 16), Band(slice(1, 2), 16)]
    with banded(bands):
        assert BANDS.get() == bands
    with banded(bands[:1]):
        assert BANDS.get() is None
    assert BANDS.get() is None


def test_a_steady_pass_computes_alike_inside_only(base):
    with base.steady():
        assert base._current.alike is base.alike
    assert base._current.alike is None
