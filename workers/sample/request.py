"""What a caller asks the sample engine for, and whether it can be done at all."""

from dataclasses import dataclass

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey
from openrl.domain.op import Sample
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from workers.sample.arrays import from_domain


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """`num_samples` continuations of one prompt, and log-probabilities of the prompt itself where asked for."""

    prompt: tuple[int, ...]
    params: SamplingParams
    policy: DepotKey | None = None  #: None samples the base model
    num_samples: int = 1
    prompt_logprobs: bool = False
    prompt_logprobs_last_n: int | None = None  #: score only so many tokens at the prompt's end (top-k too)
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    target_prompt_logprobs: Tensor | None = None  #: int64 [P - 1, K], -1 = not asked
    prompt_alternatives: int = 0  #: tokens to draw at each prompt position after the first

    @classmethod
    def of(cls, action: Sample) -> "SampleRequest":
        """The engine's request for a domain action."""
        return cls(
            prompt=tuple(from_domain(action.prompt).tolist()),
            params=action.params,
            policy=action.policy,
            num_samples=action.num_samples,
            prompt_logprobs=action.prompt_logprobs,
            prompt_logprobs_last_n=action.prompt_logprobs_last_n,
            topk_prompt_logprobs=action.topk_prompt_logprobs,
            topk_sample_logprobs=action.topk_sample_logprobs,
            target_prompt_logprobs=action.target_prompt_logprobs,
            prompt_alternatives=action.prompt_alternatives,
        )

    @property
    def scores_prompt(self) -> bool:
        """Whether the prompt must be computed even if its keys and values are in the cache."""
        return bool(
            self.prompt_logprobs
            or self.topk_prompt_logprobs
            or self.prompt_alternatives
            or self.target_prompt_logprobs is not None
        )

    @property
    def cells(self) -> int:
        """Tokens that one sample may come to hold in the cache; the last one drawn is never fed back."""
        return len(self.prompt) + self.params.max_tokens - 1 if self.params.max_tokens > 1 else 0


def check(request: SampleRequest, *, context_length: int, vocab_size: int, cache_tokens: int) -> None:
    """Raises FieldInvalid for a request that can never be served, naming the field."""
    _check_prompt(request.prompt, context_length, vocab_size)
    _check_params(request.params)
    total = len(request.prompt) + request.params.max_tokens
    if total > context_length:
        raise FieldInvalid(
            "sampling_params.max_tokens",
            f"prompt ({len(request.prompt)}) + max_tokens ({request.params.max_tokens}) is {total}, over the model's "
            f"context of {context_length}; ask for at most {context_length - len(request.prompt)}",
        )
    if request.num_samples > 0 and request.cells > cache_tokens:
        raise FieldInvalid(
            "sampling_params.max_tokens",
            f"prompt + max_tokens is {total}, and this worker's cache holds {cache_tokens} tokens; ask for fewer",
        )
    _check_counts(request, vocab_size)
    _check_targets(request.target_prompt_logprobs, len(request.prompt), vocab_size)


def _check_prompt(prompt: tuple[int, ...], context_length: int, vocab_size: int) -> None:
    if not prompt:
        raise FieldInvalid("prompt", "is empty; give at least one token (a beginning-of-sequence token will do)")
    if len(prompt) > context_length:
        raise FieldInvalid(
            "prompt", f"has {len(prompt)} tokens and the model's context is {context_length}; shorten it"
        )
    if min(prompt) < 0 or max(prompt) >= vocab_size:
        wrong = next(token for token in prompt if not 0 <= token < vocab_size)
        raise FieldInvalid("prompt", f"holds token {wrong}; the model's tokens are 0 to {vocab_size - 1}")


def _check_params(params: SamplingParams) -> None:
    if params.max_tokens < 0:
        raise FieldInvalid("sampling_params.max_tokens", f"is {params.max_tokens}; it must not be negative")
    if not 0 <= params.temperature < float("inf"):
        raise FieldInvalid("sampling_params.temperature", f"is {params.temperature}; it must be 0 (greedy) or more")
    if not 0 < params.top_p <= 1:
        raise FieldInvalid("sampling_params.top_p", f"is {params.top_p}; it must be above 0 and at most 1")
    if params.top_k < -1:
        raise FieldInvalid("sampling_params.top_k", f"is {params.top_k}; it must be -1 (keep all) or a count")


def _check_counts(request: SampleRequest, vocab_size: int) -> None:
    if request.num_samples < 0:
        raise FieldInvalid("num_samples", f"is {request.num_samples}; it must not be negative")
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs"):
        count: int = getattr(request, name)
        if not 0 <= count <= vocab_size:
            raise FieldInvalid(name, f"is {count}; it must be between 0 and the vocabulary's {vocab_size}")
    if request.prompt_alternatives < 0:
        raise FieldInvalid("prompt_alt_tokens_k", f"is {request.prompt_alternatives}; it must not be negative")
    last = request.prompt_logprobs_last_n
    if last is not None and not 1 <= last <= max(1, len(request.prompt) - 1):
        raise FieldInvalid("prompt_logprobs_last_n", f"is {last}; it must be between 1 and the prompt's length - 1")


def _check_targets(targets: Tensor | None, length: int, vocab_size: int) -> None:
    if targets is None:
        return
    name = "target_prompt_logprobs"
    if targets.dtype is not DType.INT64 or len(targets.shape) != 2 or targets.shape[0] != length - 1:
        raise FieldInvalid(
            name, f"is {targets.dtype} {list(targets.shape)}; it must be int64 [{length - 1}, K], one row per position"
        )
    ids = from_domain(targets)
    if targets.elements and (int(ids.max()) >= vocab_size or int(ids.min()) < -1):
        raise FieldInvalid(name, f"holds ids outside of -1 (not asked) and 0 to {vocab_size - 1}")
