"""What a caller asks the sample engine for, and whether it can be done at all."""

from dataclasses import dataclass

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey
from openrl.domain.limits import LEAST_TEMPERATURE, check_context, check_room, check_vocabulary, outside
from openrl.domain.op import Sample
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from workers.model.arrays import from_domain
from workers.model.attention_rows import whole_blocks


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
    tenant: str = ""  #: shares the engine evenly with other tenants
    sampler: str = ""  #: shares what its tenant has evenly with the tenant's other samplers

    @classmethod
    def of(cls, action: Sample, *, tenant: str = "", sampler: str = "") -> "SampleRequest":
        """The engine's request for a domain action of that owner."""
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
            tenant=tenant,
            sampler=sampler,
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
    def seeded(self) -> bool:
        """Whether its samples must be the same whoever shares the batch."""
        return self.params.seed is not None

    @property
    def sample_tokens(self) -> int:
        """What one sample may cost, in tokens computed, apart from the prompt."""
        return max(1, self.params.max_tokens)

    @property
    def cells(self) -> int:
        """Tokens that one sample may come to hold in the cache, in whole blocks; the last one drawn is never fed
        back."""
        if self.params.max_tokens <= 1 or self.num_samples <= 0:
            return 0
        return whole_blocks(len(self.prompt) + self.params.max_tokens - 1)


def check(
    request: SampleRequest, *, context_length: int, vocab_size: int, cache_tokens: int, uncached_tokens: int = 0
) -> None:
    """Raises FieldInvalid for a request that can never be served, naming the field. Prompts of `uncached_tokens` that
    are only scored need no cache."""
    _check_prompt(request.prompt, context_length, vocab_size)
    _check_params(request.params, vocab_size)
    check_room(len(request.prompt), request.params.max_tokens, context_length)
    if len(request.prompt) > max(cache_tokens, uncached_tokens):
        raise FieldInvalid(
            "prompt", f"has {len(request.prompt)} tokens, more than this worker's cache of {cache_tokens}; send fewer"
        )
    if request.cells > cache_tokens:
        raise FieldInvalid(
            "sampling_params.max_tokens",
            f"{request.params.max_tokens} after a prompt of {len(request.prompt)} is more than this worker's cache of "
            f"{cache_tokens} tokens; ask for at most {most_tokens(len(request.prompt), cache_tokens)}",
        )
    _check_counts(request, vocab_size)
    _check_targets(request.target_prompt_logprobs, len(request.prompt), vocab_size)


def most_tokens(prompt_tokens: int, cache_tokens: int) -> int:
    """How many may be drawn after such a prompt: the cache gives whole blocks, and one token needs no place in it."""
    blocks = cache_tokens // whole_blocks(1) * whole_blocks(1)
    return max(1, blocks - prompt_tokens + 1)


def _check_prompt(prompt: tuple[int, ...], context_length: int, vocab_size: int) -> None:
    if not prompt:
        raise FieldInvalid("prompt", "has no tokens; send at least one, such as the model's begin-of-sequence token")
    check_context(len(prompt), context_length, "prompt")
    check_vocabulary(prompt, vocab_size, "prompt")


def _check_params(params: SamplingParams, vocab_size: int) -> None:
    if params.max_tokens < 0:
        raise FieldInvalid("sampling_params.max_tokens", f"is {params.max_tokens}; it must not be negative")
    if not 0 <= params.temperature < float("inf"):
        raise FieldInvalid("sampling_params.temperature", f"is {params.temperature}; it must be 0 (greedy) or more")
    if 0 < params.temperature < LEAST_TEMPERATURE:
        raise FieldInvalid(
            "sampling_params.temperature", f"is {params.temperature:g}; send 0 for the likeliest token each time"
        )
    if not 0 < params.top_p <= 1:
        raise FieldInvalid("sampling_params.top_p", f"is {params.top_p}; it must be above 0 and at most 1")
    if params.top_k < -1 or params.top_k == 0:
        raise FieldInvalid("sampling_params.top_k", f"is {params.top_k}; it must be -1 (keep all) or at least 1")
    check_vocabulary(params.stop_tokens, vocab_size, "sampling_params.stop")


def _check_counts(request: SampleRequest, vocab_size: int) -> None:
    if request.num_samples < 0:
        raise FieldInvalid("num_samples", f"is {request.num_samples}; it must not be negative")
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs"):
        count: int = getattr(request, name)
        if count < 0:
            raise FieldInvalid(name, f"is {count}; it must not be negative")
        if count > vocab_size:
            raise FieldInvalid(name, f"is {count}; the vocabulary has {vocab_size} tokens")
    if request.prompt_alternatives < 0:
        raise FieldInvalid("prompt_alt_tokens_k", f"is {request.prompt_alternatives}; it must not be negative")
    last = request.prompt_logprobs_last_n
    if last is not None and not 1 <= last <= max(1, len(request.prompt) - 1):
        raise FieldInvalid("prompt_logprobs_last_n", f"is {last}; this prompt allows 1..{len(request.prompt) - 1}")


def _check_targets(targets: Tensor | None, length: int, vocab_size: int) -> None:
    if targets is None:
        return
    name = "target_prompt_logprobs"
    if targets.dtype is not DType.INT64:
        raise FieldInvalid(f"{name}.dtype", f"is {targets.dtype}; send int64")
    if len(targets.shape) != 2 or targets.shape[0] != length - 1:
        raise FieldInvalid(
            f"{name}.shape", f"is {list(targets.shape)}; it must be [{length - 1}, K], prompt tokens but the first"
        )
    ids = from_domain(targets).flatten()
    wrong = ((ids < -1) | (ids >= vocab_size)).nonzero()
    if len(wrong):
        raise outside(name, int(ids[wrong[0]]), int(wrong[0]), vocab_size)
