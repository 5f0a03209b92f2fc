"""What vLLM answered, as the domain's results."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openrl.domain.errors import FieldInvalid
from openrl.domain.sampling import Sequence, StopReason
from openrl.domain.tensor import DType
from workers.model.arrays import from_domain, to_domain
from workers.sample.request import SampleRequest
from workers.sample.results import FILLER_ID, FILLER_LOGPROB, PromptScores, sequence, top_logprobs


@dataclass(slots=True)
class Unfinished:
    """One sample, as far as it has come. Lists per token."""

    top: int  #: likeliest tokens to report at each position
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_ids: list[list[int]] = field(default_factory=list)
    top_logprobs: list[list[float]] = field(default_factory=list)

    def take(self, token: int, at: "Position") -> None:
        """Add a token. Raises FieldInvalid where its log-probability is not a number."""
        if math.isnan(at.logprobs[0]):
            raise FieldInvalid("model_path", "these weights give logits that are not finite")
        assert at.ids[0] == token
        self.tokens.append(token)
        self.logprobs.append(at.logprobs[0])
        self.top_ids.append(at.ids[1 : 1 + self.top])
        self.top_logprobs.append(at.logprobs[1 : 1 + self.top])

    def sequence(self, reason: StopReason) -> Sequence:
        if not self.top:
            return sequence(self.tokens, self.logprobs, reason, None)
        ids = np.array(self.top_ids, np.int32).reshape(-1, self.top)
        values = np.array(self.top_logprobs, np.float32).reshape(-1, self.top)
        return sequence(self.tokens, self.logprobs, reason, top_logprobs(ids, values))


@dataclass(frozen=True, slots=True)
class Position:
    """What vLLM tells of one position: the token that stands there, then the likeliest in order."""

    ids: list[int]
    logprobs: list[float]


def positions(flat: Any, last: int | None = None) -> Iterator[Position]:
    """Those of vLLM's FlatLogprobs, or its `last` ones."""
    starts, ends = flat.start_indices, flat.end_indices
    for start, end in list(zip(starts, ends, strict=True))[-last if last else 0 :]:
        yield Position(flat.token_ids[start:end], flat.logprobs[start:end])


def prompt_scores(request: SampleRequest, flat: Any) -> PromptScores:
    """From vLLM's FlatLogprobs of a prompt: at each position the prompt's token, the likeliest, the chosen ones."""
    length, k = len(request.prompt), request.topk_prompt_logprobs
    asked = None if request.target_prompt_logprobs is None else from_domain(request.target_prompt_logprobs).numpy()
    own, told = np.full(length, np.nan, np.float32), np.zeros((0, 0) if asked is None else asked.shape, np.float32)
    ids, values = np.full((length, k), FILLER_ID), np.full((length, k), FILLER_LOGPROB, np.float32)
    last = length - 1 if request.prompt_logprobs_last_n is None else request.prompt_logprobs_last_n
    for at, position in enumerate(positions(flat, length - 1) if length > 1 else (), 1):
        assert position.ids[0] == request.prompt[at]
        if at >= length - last:
            own[at], ids[at] = position.logprobs[0], position.ids[1 : 1 + k]
            values[at] = position.logprobs[1 : 1 + k]
        told[at - 1 : at] = position.logprobs[1 + k :]
    return PromptScores(
        to_domain(own, DType.FLOAT32) if request.prompt_logprobs else None,
        top_logprobs(ids, values) if k else None,
        None if asked is None else to_domain(np.where(asked >= 0, told, 0.0), DType.FLOAT32),
    )
