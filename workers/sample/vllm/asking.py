"""A request in vLLM's words. Pure: starts nothing."""

from typing import Any

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from openrl.domain.errors import FieldInvalid
from workers.model.arrays import from_domain
from workers.sample.randomness import stream
from workers.sample.request import SampleRequest
from workers.sample.vllm.sampler import STREAM, TARGETS

LOWEST, HIGHEST = 0.01, 2.0  #: vLLM's bounds on a temperature that is not 0; it would raise lower ones silently


def check_served(request: SampleRequest, context_length: int) -> None:
    """Raises FieldInvalid for what the other engine serves and this one cannot."""
    if request.prompt_alternatives:
        raise _torch_only("prompt_alt_tokens_k", "alternatives of prompt tokens")
    temperature = request.params.temperature
    if temperature and not LOWEST <= temperature <= HIGHEST:
        raise FieldInvalid(
            "sampling_params.temperature",
            f"is {temperature}; vLLM takes 0 (greedy) or {LOWEST} to {HIGHEST}; a torch sample worker takes any "
            "(OPENRL_SAMPLE__ENGINE=torch)",
        )
    if len(request.prompt) >= context_length:  # a prompt that is only scored: vLLM draws a token all the same
        raise FieldInvalid("prompt", f"{len(request.prompt)} tokens are too many; vLLM takes {context_length - 1} here")


def params(request: SampleRequest, sample: int, ends: frozenset[int], *, scoring: bool) -> SamplingParams:
    """For one sample of a request; `ends` are the tokens that end it. With `scoring` the prompt is scored, too."""
    mine = request.params
    return SamplingParams(
        max_tokens=max(1, mine.max_tokens),
        temperature=mine.temperature,
        top_p=mine.top_p,
        top_k=max(mine.top_k, 0),
        stop_token_ids=sorted(ends),
        ignore_eos=True,  # `ends` says it all
        logprobs=request.topk_sample_logprobs,
        prompt_logprobs=request.topk_prompt_logprobs + chosen(request) if scoring else None,
        extra_args=_extra(request, sample, scoring),
        flat_logprobs=True,
        detokenize=False,
        # Stop strings are looked for here, by the same code as with the other engine, so each token is wanted at once.
        output_kind=RequestOutputKind.DELTA if any(mine.stop_strings) else RequestOutputKind.FINAL_ONLY,
    )


def _extra(request: SampleRequest, sample: int, scoring: bool) -> dict[str, Any]:
    """What our changes to vLLM's sampler are to know."""
    extra: dict[str, Any] = {}
    if request.params.seed is not None:
        extra[STREAM] = stream(request.params.seed, sample)
    if scoring and request.target_prompt_logprobs is not None and chosen(request):
        extra[TARGETS] = from_domain(request.target_prompt_logprobs).tolist()
    return extra


def chosen(request: SampleRequest) -> int:
    """How many tokens of each position the caller chose to be told of."""
    return 0 if request.target_prompt_logprobs is None else request.target_prompt_logprobs.shape[1]


def _torch_only(field: str, what: str) -> FieldInvalid:
    return FieldInvalid(field, f"vLLM cannot tell {what}; a torch sample worker can (OPENRL_SAMPLE__ENGINE=torch)")
