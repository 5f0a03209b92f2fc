"""A request in vLLM's words. Pure: starts nothing."""

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from openrl.domain.errors import FieldInvalid
from workers.sample.request import SampleRequest
from workers.sample.torch.randomness import stream

LOWEST, HIGHEST = 0.01, 2.0  #: vLLM's bounds on a temperature that is not 0; it would raise lower ones silently
SEEDS = 1 << 63


def check_served(request: SampleRequest, context_length: int) -> None:
    """Raises FieldInvalid for what the other engine serves and this one cannot."""
    if request.prompt_alternatives:
        raise _torch_only("prompt_alt_tokens_k", "alternatives of prompt tokens")
    if request.target_prompt_logprobs is not None:
        raise _torch_only("target_prompt_logprobs", "log-probabilities of chosen prompt tokens")
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
        seed=None if mine.seed is None else stream(mine.seed, sample) % SEEDS,
        stop_token_ids=sorted(ends),
        ignore_eos=True,  # `ends` says it all
        logprobs=request.topk_sample_logprobs,
        prompt_logprobs=request.topk_prompt_logprobs if scoring else None,
        flat_logprobs=True,
        detokenize=False,
        # Stop strings are looked for here, by the same code as with the other engine, so each token is wanted at once.
        output_kind=RequestOutputKind.DELTA if any(mine.stop_strings) else RequestOutputKind.FINAL_ONLY,
    )


def _torch_only(field: str, what: str) -> FieldInvalid:
    return FieldInvalid(field, f"vLLM cannot tell {what}; a torch sample worker can (OPENRL_SAMPLE__ENGINE=torch)")
