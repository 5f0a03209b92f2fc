"""What was sampled, as the protobuf `SampleResponse`. A missing value stays missing; nothing is made up."""

from openrl.domain.sampling import SampleResult, Sequence, StopReason, TopLogprobs
from openrl.domain.tensor import Tensor
from openrl.wire import tinker_pb2 as pb
from openrl.wire.arrays import tensor_message

_REASONS = {StopReason.STOP: pb.STOP_REASON_STOP, StopReason.LENGTH: pb.STOP_REASON_LENGTH}


def sample_response(result: SampleResult) -> bytes:
    prompt, targets = result.prompt_logprobs, result.target_prompt_logprobs
    response = pb.SampleResponse(
        sequences=[_sequence(sequence) for sequence in result.sequences],
        prompt_logprobs=None if prompt is None else prompt.data,
        topk_prompt_logprobs=_top(result.top_prompt_logprobs),
        target_prompt_logprobs=None if targets is None else tensor_message(targets),
        prompt_alt_tokens=_alternatives(result.prompt_alternatives),
    )
    return response.SerializeToString()


def _sequence(sequence: Sequence) -> pb.SampledSequence:
    return pb.SampledSequence(
        stop_reason=_REASONS[sequence.stop_reason],
        tokens=sequence.tokens.data,
        logprobs=sequence.logprobs.data,
        topk_sampled_logprobs=_top(sequence.top_logprobs),
    )


def _top(top: TopLogprobs | None) -> pb.TopkLogprobs | None:
    if top is None:
        return None
    length, k = top.token_ids.shape
    return pb.TopkLogprobs(token_ids=top.token_ids.data, logprobs=top.logprobs.data, k=k, length=length)


def _alternatives(pair: tuple[Tensor, Tensor] | None) -> pb.PromptAltTokens | None:
    if pair is None:
        return None
    tokens, logprobs = pair
    return pb.PromptAltTokens(tokens=tensor_message(tokens), logprobs=tensor_message(logprobs))
