import pytest

from openrl.domain.sampling import SamplingParams, StopReason
from workers.sample.stopping import Stopper


def letters(tokens):
    return "".join(chr(ord("a") + token % 26) for token in tokens)


def ends_at(params, tokens, eos=(2,), decode=letters):
    """After how many tokens the sample ends, and why."""
    stopper = Stopper(params, eos, decode)
    for count in range(1, len(tokens) + 1):
        reason = stopper(tokens[:count])
        if reason is not None:
            return count, reason
    return None


def test_the_models_own_end_stops():
    assert ends_at(SamplingParams(max_tokens=9), [5, 2, 5]) == (2, StopReason.STOP)


def test_without_stopping_only_the_length_ends():
    params = SamplingParams(max_tokens=3, stop_at_eos=False)
    assert ends_at(params, [2, 2, 2, 2]) == (3, StopReason.LENGTH)


def test_a_stop_token_ends_beside_the_models_own():
    assert ends_at(SamplingParams(max_tokens=9, stop_tokens=(7, 8)), [5, 8, 5]) == (2, StopReason.STOP)


def test_a_stop_at_the_last_token_counts_as_stop():
    assert ends_at(SamplingParams(max_tokens=2), [5, 2]) == (2, StopReason.STOP)


def test_a_stop_string_ends_at_the_token_that_completes_it():
    params = SamplingParams(max_tokens=99, stop_strings=("xyz", "bcd"), stop_at_eos=False)
    assert ends_at(params, [0, 1, 2, 3, 4]) == (4, StopReason.STOP)


@pytest.mark.parametrize("before", [0, 1, 60, 61, 62, 63, 64, 65, 200, 1000])
def test_a_stop_string_is_found_however_long_the_text_before(before):
    params = SamplingParams(max_tokens=10_000, stop_strings=("bcdefghijkl",), stop_at_eos=False)
    tokens = [0] * before + list(range(1, 12)) + [0] * 5
    assert ends_at(params, tokens) == (before + 11, StopReason.STOP)


def test_only_a_short_tail_is_decoded():
    longest = 0

    def watched(tokens):
        nonlocal longest
        longest = max(longest, len(tokens))
        return letters(tokens)

    params = SamplingParams(max_tokens=10_000, stop_strings=("qq",), stop_at_eos=False)
    assert ends_at(params, [0] * 3000, decode=watched) is None
    assert longest < 100


def test_tokens_without_text_do_not_push_a_stop_string_out_of_sight():
    params = SamplingParams(max_tokens=10_000, stop_strings=("bc",), stop_at_eos=False)

    def sparse(tokens):
        return letters([token for token in tokens if token != 25])

    tokens = [0] * 100 + [1] + [25] * 300 + [2]
    assert ends_at(params, tokens, decode=sparse) == (402, StopReason.STOP)


def test_a_stop_string_across_split_characters_is_found():
    text = "aé€b€€end"
    raw = list(text.encode())

    def decode(tokens):
        return bytes(tokens).decode(errors="replace")

    params = SamplingParams(max_tokens=99, stop_strings=("€€e",), stop_at_eos=False)
    wanted = len("aé€b€€e".encode())
    assert ends_at(params, raw, eos=(), decode=decode) == (wanted, StopReason.STOP)
