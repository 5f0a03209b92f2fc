import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.sampling import SamplingParams
from workers.sample.request import SampleRequest, check, check_cache


def test_the_context_may_be_filled_to_the_last_token_whatever_blocks_a_cache_has():
    full = SampleRequest(prompt=(1, 2, 3), params=SamplingParams(max_tokens=57))
    check(full, context_length=60, vocab_size=512)
    with pytest.raises(FieldInvalid, match="max_tokens"):
        check(full, context_length=59, vocab_size=512)


def test_a_cache_holds_whole_blocks():
    request = SampleRequest(prompt=(1, 2, 3), params=SamplingParams(max_tokens=57))
    check_cache(request, 64)
    with pytest.raises(FieldInvalid, match="cache of 63 tokens"):
        check_cache(request, 63)
