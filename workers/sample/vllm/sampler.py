"""A change to vLLM's sampler, inside of its worker processes: which log-probabilities it tells of sampled tokens.

vLLM knows those of the model's own distribution and those after top-k and top-p have cut it. A sample's are those in
between: scaled by the temperature and not cut. They are taken where vLLM hands scaled logits to its top-k/top-p step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

#: What vLLM is told to mix into its workers.
EXTENSION = f"{__name__}.WorkerExtension"


class Untruncated(nn.Module):
    """Stands before vLLM's top-k/top-p step, draws as that does, and tells the distribution that it was given."""

    def __init__(self, step: Any) -> None:
        super().__init__()
        self.step = step

    def forward(
        self, logits: Tensor, generators: Mapping[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens [n] and log-probabilities float32 [n, V] of logits [n, V], which are scaled and may be overwritten."""
        logprobs = logits.log_softmax(-1, dtype=torch.float32)
        tokens, _ = self.step(logits, generators, k, p)
        return tokens, logprobs


class WorkerExtension:
    """Methods that vLLM's workers get beside their own, for `collective_rpc`."""

    model_runner: Any

    def openrl_untruncate(self) -> str:
        """Put the change in place. An empty answer, or why it cannot be."""
        sampler: Any = getattr(self.model_runner, "sampler", None)
        step = getattr(sampler, "topk_topp_sampler", None)
        if step is None:
            return f"{type(self.model_runner).__module__} has no top-k/top-p step where it is expected"
        sampler.topk_topp_sampler = Untruncated(step)
        return ""
