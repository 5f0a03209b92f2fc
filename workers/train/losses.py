"""Losses as pure functions of flat float32 tensors, one element per token. Knows no batches, no model, no requests.

Every function gives the loss of each token; whoever calls it adds them up (sums only: requests may be cut in chunks and
gradients pile up over requests, so no loss divides by anything). `lp` are the log-probabilities of the target tokens,
through which gradients flow. The formulas are Tinker's, from its documentation of losses; which inputs and settings
each one takes is in `openrl/domain/losses.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from openrl.domain.datum import Loss


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """What a policy-gradient loss reads beside `lp`, each [M] float32."""

    logprobs: Tensor  #: of the policy that sampled the tokens
    advantages: Tensor
    clip_low: Tensor
    clip_high: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "TokenInputs":
        return TokenInputs(
            change(self.logprobs), change(self.advantages), change(self.clip_low), change(self.clip_high)
        )


def cross_entropy(lp: Tensor, weights: Tensor) -> Tensor:
    """-lp · w, for targets of any shape. Weights may be negative: the SDK's custom losses send gradients as weights."""
    return -lp * weights


def importance_sampling(lp: Tensor, given: TokenInputs, config: Mapping[str, float]) -> Tensor:
    """-r·A with r = exp(lp - q)."""
    return -torch.exp(lp - given.logprobs) * given.advantages


def ppo(lp: Tensor, given: TokenInputs, config: Mapping[str, float]) -> Tensor:
    """-min(r·A, clip(r)·A); the bounds are those of the ratio itself. Schulman et al. 2017, eq. 7."""
    ratio = torch.exp(lp - given.logprobs)
    clipped = torch.minimum(torch.maximum(ratio, given.clip_low), given.clip_high)
    return -torch.minimum(ratio * given.advantages, clipped * given.advantages)


def cispo(lp: Tensor, given: TokenInputs, config: Mapping[str, float]) -> Tensor:
    """-sg(clip(r))·lp·A: the clipped ratio only weighs the gradient. MiniMax-M1, 2025, eq. 4."""
    ratio = torch.exp(lp.detach() - given.logprobs)
    clipped = torch.minimum(torch.maximum(ratio, given.clip_low), given.clip_high)
    return -clipped * lp * given.advantages


def dro(lp: Tensor, given: TokenInputs, config: Mapping[str, float]) -> Tensor:
    """-(lp·A - ½·beta·(lp - q)²). Richemond et al. 2024, with the value given as part of the advantage."""
    return -(lp * given.advantages - 0.5 * config["beta"] * (lp - given.logprobs) ** 2)


PolicyLoss = Callable[[Tensor, TokenInputs, Mapping[str, float]], Tensor]

POLICY_LOSSES: dict[Loss, PolicyLoss] = {
    Loss.IMPORTANCE_SAMPLING: importance_sampling,
    Loss.PPO: ppo,
    Loss.CISPO: cispo,
    Loss.DRO: dro,
}
