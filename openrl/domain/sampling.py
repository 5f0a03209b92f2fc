"""How to sample, and what came out."""

from dataclasses import dataclass, field
from enum import StrEnum

from openrl.domain.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    max_tokens: int
    temperature: float = 1.0  #: 0 is greedy
    top_p: float = 1.0
    top_k: int = -1  #: -1 keeps all
    seed: int | None = None
    stop_strings: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    stop_at_eos: bool = True  #: the model's own end-of-sequence tokens end the sample too


class StopReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLogprobs:
    """The k likeliest tokens at each of `length` positions. One that was not computed holds the SDK's filler: token 0 at
    -99999."""

    token_ids: Tensor  #: int32 [length, k]
    logprobs: Tensor  #: float32 [length, k]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One sample. A stop token is part of `tokens`."""

    tokens: Tensor  #: int32 [T]
    logprobs: Tensor  #: float32 [T], under the temperature-scaled distribution, before top-k and top-p
    stop_reason: StopReason
    top_logprobs: TopLogprobs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    sequences: tuple[Sequence, ...]
    prompt_logprobs: Tensor | None = None  #: float32 [prompt], at temperature 1; NaN where not computed, as at 0
    top_prompt_logprobs: TopLogprobs | None = None
    target_prompt_logprobs: Tensor | None = None  #: float32 [prompt - 1, K]; 0 where the target was -1
    prompt_alternatives: tuple[Tensor, Tensor] | None = field(default=None)  #: int64 and float32 [prompt - 1, k]
