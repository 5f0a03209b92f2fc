"""Twenty thousand tokens have the frequencies that they should have, by chi-square. With a seed the draws, and so the
outcome, are always the same."""

from typing import Any

import pytest
import torch
from laboratory import Laboratory, chances, fit
from torch import Tensor

PROMPT = [3, 50, 21]
SAMPLES, TOKENS = 250, 80


@pytest.mark.parametrize(
    "cut",
    [
        {"temperature": 1.0},
        {"temperature": 0.6, "top_k": 12},
        {"temperature": 1.6, "top_p": 0.8},
        {"temperature": 2.0, "top_k": 30, "top_p": 0.85},
    ],
    ids=str,
)
def test_seeded_samples_are_drawn_with_their_chances(lab: Laboratory, cut: dict[str, Any]) -> None:
    drawn, logits = draws(lab, seed=11, **cut)
    assert fit(drawn, chances(logits, **cut)) > 1e-4


def test_samples_without_a_seed_are_drawn_with_their_chances(lab: Laboratory) -> None:
    cut = {"temperature": 1.5, "top_k": 40, "top_p": 0.9}
    drawn, logits = draws(lab, **cut)
    assert fit(drawn, chances(logits, **cut)) > 1e-8


def draws(lab: Laboratory, **fields: Any) -> tuple[Tensor, Tensor]:
    """Tokens [N], and the logits [N, V] that each was drawn from."""
    result = lab.run(lab.ask(PROMPT, TOKENS, num_samples=SAMPLES, **fields))[0]
    drawn = torch.tensor([lab.tokens(sequence) for sequence in result.sequences])
    whole = torch.cat([torch.tensor(PROMPT).expand(SAMPLES, -1), drawn], -1)
    with torch.no_grad():
        logits = lab.module(whole).logits[:, len(PROMPT) - 1 : -1]
    return drawn.flatten(), logits.flatten(0, 1)


def test_the_trial_itself_can_fail() -> None:
    """Draws at a slightly other temperature, from a larger cut or with luck used twice do not pass for right ones."""
    luck = torch.Generator().manual_seed(2)
    logits = torch.randn(SAMPLES * TOKENS // 4, 97, generator=luck)

    def draw(chance: Tensor) -> Tensor:
        return torch.multinomial(chance, 1, generator=luck)[:, 0]

    right = chances(logits, 1.0)
    assert fit(draw(right), right) > 1e-4
    assert fit(draw(chances(logits, 1.2)), right) < 1e-4
    assert fit(draw(chances(logits, 1.0, top_p=0.9)), right) < 1e-4
    with pytest.raises(AssertionError, match="had been cut"):
        fit(draw(right), chances(logits, 1.0, top_k=90))
