import numpy as np
from tinker.proto.response_conv import deserialize_sample_response

from openrl.domain.sampling import SampleResult, Sequence, StopReason, TopLogprobs
from openrl.wire.arrays import tensor_of
from openrl.wire.samples import sample_response


def floats(*values):
    return tensor_of(np.array(values, "<f4"))


def ints(*values, dtype="<i4"):
    return tensor_of(np.array(values, dtype))


def test_the_sdk_reads_what_was_sampled():
    top = TopLogprobs(token_ids=ints([1, 2], [0, 0]), logprobs=floats([-1.0, -2.0], [-99999.0, -99999.0]))
    sequence = Sequence(
        tokens=ints(5, 6), logprobs=floats(-0.5, -0.25), stop_reason=StopReason.LENGTH, top_logprobs=top
    )
    read = deserialize_sample_response(sample_response(SampleResult(sequences=(sequence,))))
    (only,) = read.sequences
    assert (only.stop_reason, only.tokens, only.logprobs) == ("length", [5, 6], [-0.5, -0.25])
    assert only.topk_logprobs == [[(1, -1.0), (2, -2.0)], None]
    assert read.prompt_logprobs is None
    assert read.target_prompt_logprobs is None


def test_the_sdk_reads_everything_about_the_prompt():
    result = SampleResult(
        sequences=(),
        prompt_logprobs=floats(float("nan"), -1.0),
        top_prompt_logprobs=TopLogprobs(token_ids=ints([0], [7]), logprobs=floats([-99999.0], [-1.0])),
        target_prompt_logprobs=floats([-3.0, 0.0]),
        prompt_alternatives=(ints([4, 4], dtype="<i8"), floats([-2.0, -2.0])),
    )
    read = deserialize_sample_response(sample_response(result))
    assert read.prompt_logprobs == [None, -1.0]
    assert read.topk_prompt_logprobs == [None, [(7, -1.0)]]
    assert read.target_prompt_logprobs.to_numpy().tolist() == [[-3.0, 0.0]]
    assert read.prompt_alt_tokens.tokens.to_numpy().tolist() == [[4, 4]]
