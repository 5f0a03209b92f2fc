"""What samples become in the domain, whichever engine drew them."""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from openrl.domain.sampling import SampleResult, Sequence, StopReason, TopLogprobs
from openrl.domain.tensor import DType, Tensor
from workers.model.arrays import to_domain

FILLER_ID, FILLER_LOGPROB = 0, -99999.0  #: how the wire spells a cell that was not computed

Array = torch.Tensor | NDArray[Any]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The prompt's part of a sample's result; None where not asked for."""

    logprobs: Tensor | None = None
    top: TopLogprobs | None = None
    targets: Tensor | None = None
    alternatives: tuple[Tensor, Tensor] | None = None


def result(sequences: Many[Sequence], scores: PromptScores) -> SampleResult:
    return SampleResult(
        sequences=tuple(sequences),
        prompt_logprobs=scores.logprobs,
        top_prompt_logprobs=scores.top,
        target_prompt_logprobs=scores.targets,
        prompt_alternatives=scores.alternatives,
    )


def sequence(tokens: list[int], logprobs: list[float], reason: StopReason, top: TopLogprobs | None) -> Sequence:
    return Sequence(
        tokens=to_domain(tokens, DType.INT32),
        logprobs=to_domain(logprobs, DType.FLOAT32),
        stop_reason=reason,
        top_logprobs=top,
    )


def top_logprobs(ids: Array, values: Array) -> TopLogprobs:
    """From token ids and their log-probabilities, each [length, k]."""
    return TopLogprobs(token_ids=to_domain(ids, DType.INT32), logprobs=to_domain(values, DType.FLOAT32))
