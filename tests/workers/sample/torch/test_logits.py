from collections import Counter

import pytest
import torch

from workers.sample.randomness import stream
from workers.sample.torch.logits import Choice, Draw

CPU = torch.device("cpu")


def draws(logits, choice, count, first_seed=0):
    """Tokens that `count` streams of one row draw."""
    rows = logits.expand(count, -1)
    choices = [Choice(choice.temperature, choice.top_k, choice.top_p, stream(first_seed + i, 0)) for i in range(count)]
    return Draw(choices, CPU)(rows, [0] * count).tokens.tolist()


def chi_square(seen, expected, count):
    return sum((seen.get(token, 0) - count * p) ** 2 / (count * p) for token, p in enumerate(expected) if p > 0)


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, -1, 1.0), (0.5, -1, 1.0), (1.0, 3, 1.0), (1.3, -1, 0.7), (1.0, 4, 0.8)]
)
def test_frequencies_follow_the_cut_distribution(temperature, top_k, top_p, seeded):
    logits = torch.tensor([1.0, 0.2, -0.5, 0.9, 2.0, -1.0, 0.0])
    probs = torch.softmax(logits / temperature, -1)
    order = probs.argsort(descending=True)
    kept = order[: top_k if top_k > 0 else None]
    cumulated = probs[kept].cumsum(0) / probs[kept].sum()
    kept = kept[: int((cumulated < top_p).sum()) + 1]
    expected = torch.zeros(7)
    expected[kept] = probs[kept] / probs[kept].sum()
    seen = Counter(draws(logits, Choice(temperature, top_k, top_p, seeded=seeded), 8_000))
    assert all(expected[token] > 0 for token in seen)
    assert chi_square(seen, expected.tolist(), 8_000) < 24  # 6 degrees of freedom: p = 0.0005


def test_a_nucleus_that_is_seldom_hit_is_found_by_sorting():
    logits = torch.zeros(3000)
    logits[17], logits[18] = 2.0, 1.0  # together a few thousandths
    seen = Counter(draws(logits, Choice(top_p=0.003), 300))
    assert set(seen) == {17, 18}
    assert 0.6 < seen[17] / 300 < 0.85  # e / (e + 1) = 0.73


def test_a_nucleus_may_be_wide():
    tokens = draws(torch.randn(3000), Choice(top_p=0.9), 1000)
    assert len(set(tokens)) > 400


def test_a_row_draws_the_same_whoever_is_beside_it():
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(3))
    choices = [
        Choice(0.7, 5, 0.9, 11),
        Choice(1.0, -1, 0.95, 12),
        Choice(1.0, -1, 0.6, 14, True),
        Choice(0.0),
        Choice(1.0, 300, 0.5, 13, True),
    ]
    together = Draw(choices, CPU)(logits, [4, 5, 6, 7, 8])
    for row, choice in enumerate(choices):
        alone = Draw([choice], CPU)(logits[row : row + 1], [4 + row])
        assert alone.tokens[0] == together.tokens[row]
        assert alone.logprobs[0] == together.logprobs[row]


def test_logprobs_are_of_the_scaled_distribution_before_cuts():
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    drawn = Draw([Choice(0.5, 2, 0.5, 1), Choice(0.0), Choice(2.0, stream=2)], CPU)(logits, [0, 0, 0])
    for row, temperature in enumerate((0.5, 1.0, 2.0)):
        expected = torch.log_softmax(logits[row] / temperature, -1)[drawn.tokens[row]]
        assert torch.allclose(drawn.logprobs[row], expected, atol=1e-6)


def test_temperature_zero_takes_the_likeliest():
    logits = torch.randn(5, 40)
    assert Draw([Choice(0.0)] * 5, CPU)(logits, [0] * 5).tokens.tolist() == logits.argmax(-1).tolist()


def test_top_logprobs_are_as_wide_as_the_widest_wish():
    logits = torch.randn(2, 40)
    drawn = Draw([Choice(0.5, top_logprobs=3), Choice(top_logprobs=1)], CPU)(logits, [0, 0])
    values, ids = torch.log_softmax(logits / torch.tensor([[0.5], [1.0]]), -1).topk(3)
    assert drawn.top_ids.tolist() == ids.tolist()
    assert torch.allclose(drawn.top_logprobs, values, atol=1e-6)


def test_a_row_that_is_not_finite_is_told_by_its_logprob():
    logits = torch.randn(2, 40)
    logits[1, 3] = float("nan")
    drawn = Draw([Choice(stream=1), Choice(stream=2, top_p=0.9)], CPU)(logits, [0, 0])
    assert bool(drawn.logprobs[0].isfinite())
    assert bool(drawn.logprobs[1].isnan())


def test_a_row_alone_has_the_same_bits_on_several_threads():
    logits = torch.randn(6, 200_000, generator=torch.Generator().manual_seed(1))
    choice, before = Choice(1.0, -1, 0.9, 11, True), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = Draw([choice] * 6, CPU)(logits, [0] * 6)
        alone = [Draw([choice], CPU)(row[None], [0]) for row in logits]
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.cat([each.logprobs for each in alone]), together.logprobs)
    assert torch.equal(torch.cat([each.tokens for each in alone]), together.tokens)
