"""How much a context, and a worker's cache, let a request ask for."""

import re

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.sampling import SamplingParams
from workers.sample.request import SampleRequest, check, check_cache


def checked(prompt: int, max_tokens: int, cache_tokens: int) -> None:
    request = SampleRequest(prompt=(1,) * prompt, params=SamplingParams(max_tokens=max_tokens))
    check_cache(request, cache_tokens, uncached_tokens=512)


@pytest.mark.parametrize(("prompt", "cache"), [(3, 64), (16, 64), (63, 64), (64, 64), (500, 64), (5, 100), (1, 8)])
def test_what_a_refusal_for_want_of_cache_advises_is_accepted_and_no_more(prompt: int, cache: int) -> None:
    with pytest.raises(FieldInvalid, match=rf"cache of {cache} tokens; ask for at most \d+$") as caught:
        checked(prompt, 2000, cache)
    most = int(re.findall(r"\d+", str(caught.value))[-1])
    checked(prompt, most, cache)
    with pytest.raises(FieldInvalid, match=f"ask for at most {most}$"):
        checked(prompt, most + 1, cache)


def test_the_context_may_be_filled_to_the_last_token_whatever_blocks_a_cache_has() -> None:
    full = SampleRequest(prompt=(1, 2, 3), params=SamplingParams(max_tokens=57))
    check(full, context_length=60, vocab_size=100)
    with pytest.raises(FieldInvalid, match="max_tokens"):
        check(full, context_length=59, vocab_size=100)


def test_a_prompt_that_nothing_makes_fit_is_told_so_rather_than_to_draw_less() -> None:
    request = SampleRequest(prompt=(1,) * 500, params=SamplingParams(max_tokens=2000))
    with pytest.raises(FieldInvalid, match="has 500 tokens"):
        check_cache(request, 64, uncached_tokens=256)
