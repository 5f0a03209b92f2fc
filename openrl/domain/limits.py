"""What a model can take: the tokens of its vocabulary, and as many of them as its context. The gateway and the engines
refuse in the same words."""

from collections.abc import Sequence

from openrl.domain.errors import FieldInvalid
from openrl.domain.tensor import DType, Tensor

#: Below this, logits over the temperature are no numbers any more.
LEAST_TEMPERATURE = 1e-30
#: No token stands for more, so that what is far too long is refused before it is made tokens of.
CHARS_PER_TOKEN = 256


def check_context(tokens: int, context_length: int, where: str) -> None:
    """Raises FieldInvalid for more tokens than the model's context."""
    if tokens > context_length:
        raise FieldInvalid(where, f"{tokens} tokens are more than the model's context of {context_length}; send fewer")


def check_chars(chars: int, context_length: int, where: str) -> None:
    """Raises FieldInvalid for a text that cannot have as few tokens as the model's context."""
    if chars > context_length * CHARS_PER_TOKEN:
        problem = f"{chars} characters are more than the model's context of {context_length} tokens; send fewer"
        raise FieldInvalid(where, problem)


def check_room(prompt_tokens: int, max_tokens: int, context_length: int) -> None:
    """Raises FieldInvalid unless `max_tokens` can follow the prompt within the model's context."""
    left = context_length - prompt_tokens
    if left < 1 <= max_tokens:
        raise FieldInvalid(
            "prompt", f"{prompt_tokens} tokens leave no room to sample in a context of {context_length}; send fewer"
        )
    if max_tokens > left:
        raise FieldInvalid(
            "sampling_params.max_tokens",
            f"{max_tokens} after a prompt of {prompt_tokens} is more than the context of {context_length}; "
            f"ask for at most {left}",
        )


def check_vocabulary(ids: Sequence[int], vocab_size: int, where: str) -> None:
    """Raises FieldInvalid for the first id that is no token."""
    if len(ids) and (min(ids) < 0 or max(ids) >= vocab_size):
        at, token = next((at, token) for at, token in enumerate(ids) if not 0 <= token < vocab_size)
        raise outside(where, token, at, vocab_size)


def check_tokens(tensor: Tensor, vocab_size: int, where: str) -> None:
    """The same for an integer tensor, flat."""
    if tensor.elements:  # an empty view cannot be cast
        ids = memoryview(tensor.data).cast("q" if tensor.dtype is DType.INT64 else "i")
        check_vocabulary(ids, vocab_size, where)


def outside(where: str, token: int, at: int, vocab_size: int) -> FieldInvalid:
    return FieldInvalid(where, f"token {token} at position {at} is outside the vocabulary (0..{vocab_size - 1})")
