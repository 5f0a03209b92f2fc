"""Each loss against its definition, token by token in plain Python."""

import math

import pytest
import torch

from openrl.domain.datum import Loss
from workers.train.losses import POLICY_LOSSES, TokenInputs, cross_entropy

LP = [-0.1, -2.0, -1.0, -3.0, -0.5, -2.5]
Q = [-0.2, -1.0, -1.0, -5.0, -2.0, -2.4]
A = [1.0, -1.0, 0.5, 2.0, -0.7, -1.5]


def reference(loss: Loss, lp: float, q: float, a: float, low: float, high: float, beta: float) -> tuple[float, float]:
    """The loss of a token and its derivative by lp."""
    r = math.exp(lp - q)
    clipped = min(max(r, low), high)
    if loss is Loss.IMPORTANCE_SAMPLING:
        return -r * a, -r * a
    if loss is Loss.PPO:
        return -min(r * a, clipped * a), -r * a if r * a <= clipped * a else 0.0
    if loss is Loss.CISPO:
        return -clipped * lp * a, -clipped * a
    return -(lp * a - 0.5 * beta * (lp - q) ** 2), -(a - beta * (lp - q))


@pytest.mark.parametrize("loss", POLICY_LOSSES)
def test_policy_losses_and_their_gradients_follow_the_definition(loss: Loss) -> None:
    lp = torch.tensor(LP, requires_grad=True)
    given = TokenInputs(torch.tensor(Q), torch.tensor(A), torch.full((6,), 0.8), torch.full((6,), 1.2))
    losses = POLICY_LOSSES[loss](lp, given, {"beta": 0.3})
    (slopes,) = torch.autograd.grad(losses.sum(), lp)
    wanted = [reference(loss, *each, 0.8, 1.2, 0.3) for each in zip(LP, Q, A, strict=True)]
    torch.testing.assert_close(losses, torch.tensor([value for value, _ in wanted]))
    torch.testing.assert_close(slopes, torch.tensor([slope for _, slope in wanted]))


def test_cross_entropy_takes_any_weight_and_shape() -> None:
    lp = torch.tensor([LP, Q])
    weights = torch.tensor([A, [0.0] * 6])
    torch.testing.assert_close(cross_entropy(lp, weights).sum(), -(torch.tensor(LP) * torch.tensor(A)).sum())


def test_clip_bounds_may_differ_by_token() -> None:
    given = TokenInputs(torch.zeros(2), torch.ones(2), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 3.0]))
    losses = POLICY_LOSSES[Loss.CISPO](torch.zeros(2) - 1.0, given, {})
    torch.testing.assert_close(losses, torch.tensor([math.exp(-1.0), 2.0]))
