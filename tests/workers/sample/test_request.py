"""How much a worker's cache lets a request ask for."""

import re

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.sampling import SamplingParams
from workers.sample.request import SampleRequest, check


def checked(prompt: int, max_tokens: int, cache_tokens: int) -> None:
    request = SampleRequest(prompt=(1,) * prompt, params=SamplingParams(max_tokens=max_tokens))
    check(request, context_length=4096, vocab_size=100, cache_tokens=cache_tokens, uncached_tokens=512)


@pytest.mark.parametrize(("prompt", "cache"), [(3, 64), (16, 64), (63, 64), (64, 64), (500, 64), (5, 100), (1, 8)])
def test_what_a_refusal_for_want_of_cache_advises_is_accepted_and_no_more(prompt: int, cache: int) -> None:
    with pytest.raises(FieldInvalid, match=rf"cache of {cache} tokens; ask for at most \d+$") as caught:
        checked(prompt, 2000, cache)
    most = int(re.findall(r"\d+", str(caught.value))[-1])
    checked(prompt, most, cache)
    with pytest.raises(FieldInvalid, match=f"ask for at most {most}$"):
        checked(prompt, most + 1, cache)
