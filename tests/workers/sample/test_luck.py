import numpy as np
import torch

from workers.sample.luck import Luck, invert, race, waits
from workers.sample.randomness import keys, stream, uniforms


def words(count, step=0):
    return keys(np.array([stream(seed, 0) for seed in range(count)], np.uint64), np.full(count, step, np.uint64))


def test_weight_zero_is_never_hit():
    weights = torch.tensor([[0.0, 1.0, 0.0, 2.0, 0.0]])
    luck = torch.tensor([[0.0, 0.2, 0.34, 0.5, 1.0]])
    assert set(invert(weights.cumsum(-1), luck)[0].tolist()) == {1, 3}
    assert set(race(weights.expand(500, -1), words(500)).tolist()) == {1, 3}


def test_streams_of_one_seed_differ_by_sample_and_repeat():
    streams = {stream(5, sample) for sample in range(1000)} | {stream(seed, 0) for seed in range(1000)}
    assert len(streams) == 1999
    assert stream(5, 3) == stream(5, 3)
    assert stream(-1, 0) == stream(2**64 - 1, 0)
    assert stream(None, 0) != stream(None, 0)


def test_uniform_numbers_are_uniform_and_uncorrelated_between_steps_and_streams():
    numbers = np.stack([uniforms(words(200, step)) for step in range(200)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 44  # 19 degrees of freedom: p = 0.001
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 0.02


def test_waiting_times_are_exponential_and_uncorrelated_between_tokens_rows_and_steps():
    times = torch.stack([waits(torch.arange(500)[None], words(40, step)) for step in range(10)]).double()
    assert float(times.min()) > 0
    shares = 1 - torch.exp(-times)  # uniform, if the times are exponential
    counts = torch.histc(shares, 20, 0, 1)
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 44
    for one, other in (
        (times[:, :, 1:], times[:, :, :-1]),
        (times[:, 1:], times[:, :-1]),
        (times[1:], times[:-1]),
    ):
        assert abs(np.corrcoef(one.flatten(), other.flatten())[0, 1]) < 0.01


def test_a_token_waits_the_same_wherever_it_stands():
    ids = torch.tensor([[7, 3, 99]]).expand(4, -1)
    assert torch.equal(waits(ids, words(4)), waits(torch.arange(100)[None], words(4))[:, [7, 3, 99]])


def test_a_seeded_row_keeps_its_token_when_logits_move_by_rounding():
    logits = torch.randn(300, 2000, generator=torch.Generator().manual_seed(2))
    moved = logits + 0.01 * torch.randn(300, 2000, generator=torch.Generator().manual_seed(3))
    kept = {}
    for seeded in (False, True):
        luck = Luck([stream(row, 0) for row in range(300)], [seeded] * 300)
        rows, steps = np.arange(300), np.zeros(300, np.uint64)
        kept[seeded] = int((luck.pick(logits.exp(), rows, steps) == luck.pick(moved.exp(), rows, steps)).sum())
    assert kept[True] > 285
    assert kept[False] < kept[True]
