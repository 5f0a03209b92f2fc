import struct
from collections.abc import Sequence

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.limits import CHARS_PER_TOKEN, check_chars, check_context, check_room, check_tokens
from openrl.domain.tensor import DType, Tensor


def ints(values: Sequence[int], dtype: DType = DType.INT64) -> Tensor:
    letter = "q" if dtype is DType.INT64 else "i"
    return Tensor(dtype=dtype, shape=(len(values),), data=struct.pack(f"<{len(values)}{letter}", *values))


@pytest.mark.parametrize("dtype", [DType.INT64, DType.INT32])
@pytest.mark.parametrize(("ids", "wrong"), [([0, 512], 512), ([3, -100], -100)])
def test_token_ids_outside_the_vocabulary_are_told(ids: list[int], wrong: int, dtype: DType) -> None:
    check_tokens(ints([0, 511], dtype), 512, "x")
    with pytest.raises(FieldInvalid, match=rf"x: token {wrong} at position 1 is outside the vocabulary \(0\.\.511\)"):
        check_tokens(ints(ids, dtype), 512, "x")


def test_nothing_is_in_every_vocabulary() -> None:
    check_tokens(ints([]), 512, "x")


def test_more_tokens_than_the_context_are_refused() -> None:
    check_context(16, 16, "x")
    with pytest.raises(FieldInvalid, match="x: 17 tokens are more than the model's context of 16"):
        check_context(17, 16, "x")


def test_a_sample_must_end_within_the_context() -> None:
    check_room(10, 6, 16)
    check_room(16, 0, 16)
    with pytest.raises(FieldInvalid, match=r"^sampling_params.max_tokens: 7 after a prompt of 10 .* at most 6"):
        check_room(10, 7, 16)
    with pytest.raises(FieldInvalid, match=r"^prompt: 16 tokens leave no room"):
        check_room(16, 1, 16)


def test_a_text_that_cannot_fit_is_refused_by_its_characters() -> None:
    check_chars(64 * CHARS_PER_TOKEN, 64, "prompts[0].text")
    with pytest.raises(
        FieldInvalid, match=r"^prompts\[0\].text: 16385 characters are more than .* context of 64 tokens"
    ):
        check_chars(64 * CHARS_PER_TOKEN + 1, 64, "prompts[0].text")
