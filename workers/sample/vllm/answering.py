"""What vLLM answered, as the domain's results."""

import math
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openrl.domain.errors import FieldInvalid
from openrl.domain.sampling import Sequence, StopReason, TopLogprobs
from openrl.domain.tensor import DType, Tensor
from workers.model.arrays import from_domain, to_domain
from workers.sample.request import SampleRequest

FILLER_ID, FILLER_LOGPROB = 0, -99999.0  #: how the wire spells a cell that was not computed


@dataclass(slots=True)
class Drawn:
    """One sample, as far as it has come. Lists per token."""

    top: int  #: likeliest tokens to report at each position
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_ids: list[list[int]] = field(default_factory=list)
    top_logprobs: list[list[float]] = field(default_factory=list)

    def take(self, token: int, row: "Row") -> None:
        """Add a token. Raises FieldInvalid where its log-probability is not a number."""
        if math.isnan(row.logprobs[0]):
            raise FieldInvalid("model_path", "these weights give logits that are not finite")
        assert row.ids[0] == token
        self.tokens.append(token)
        self.logprobs.append(row.logprobs[0])
        self.top_ids.append(row.ids[1 : 1 + self.top])
        self.top_logprobs.append(row.logprobs[1 : 1 + self.top])

    def sequence(self, reason: StopReason) -> Sequence:
        return Sequence(
            tokens=to_domain(self.tokens, DType.INT32),
            logprobs=to_domain(self.logprobs, DType.FLOAT32),
            stop_reason=reason,
            top_logprobs=_top(self.top_ids, self.top_logprobs, self.top) if self.top else None,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """What vLLM tells of one position: the token that stands there, then the likeliest in order."""

    ids: list[int]
    logprobs: list[float]


def rows(flat: Any, last: int | None = None) -> Iterator[Row]:
    """The positions of vLLM's FlatLogprobs, or its `last` ones."""
    starts, ends = flat.start_indices, flat.end_indices
    for start, end in list(zip(starts, ends, strict=True))[-last if last else 0 :]:
        yield Row(flat.token_ids[start:end], flat.logprobs[start:end])


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The prompt's part of a result; None where not asked for."""

    logprobs: Tensor | None = None
    top: TopLogprobs | None = None
    targets: Tensor | None = None


def prompt_scores(request: SampleRequest, flat: Any) -> PromptScores:
    """From vLLM's FlatLogprobs of a prompt: at each position the prompt's token, the likeliest, the chosen ones."""
    length, k = len(request.prompt), request.topk_prompt_logprobs
    asked = None if request.target_prompt_logprobs is None else from_domain(request.target_prompt_logprobs).numpy()
    own, told = np.full(length, np.nan, np.float32), np.zeros((0, 0) if asked is None else asked.shape, np.float32)
    ids, values = np.full((length, k), FILLER_ID), np.full((length, k), FILLER_LOGPROB, np.float32)
    last = length - 1 if request.prompt_logprobs_last_n is None else request.prompt_logprobs_last_n
    for at, row in enumerate(rows(flat, length - 1) if length > 1 else (), 1):
        assert row.ids[0] == request.prompt[at]
        if at >= length - last:
            own[at], ids[at], values[at] = row.logprobs[0], row.ids[1 : 1 + k], row.logprobs[1 : 1 + k]
        told[at - 1 : at] = row.logprobs[1 + k :]
    return PromptScores(
        to_domain(own, DType.FLOAT32) if request.prompt_logprobs else None,
        _top(ids, values, k) if k else None,
        None if asked is None else to_domain(np.where(asked >= 0, told, 0.0), DType.FLOAT32),
    )


def _top(ids: "Many[Many[int]] | np.ndarray", values: "Many[Many[float]] | np.ndarray", width: int) -> TopLogprobs:
    return TopLogprobs(
        token_ids=to_domain(np.asarray(ids, np.int32).reshape(-1, width), DType.INT32),
        logprobs=to_domain(np.asarray(values, np.float32).reshape(-1, width), DType.FLOAT32),
    )
