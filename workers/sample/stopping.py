"""When a sample ends: a stop token, the model's end of sequence, a stop string, or its length. Pure."""

from collections.abc import Callable, Sequence

from openrl.domain.sampling import SamplingParams, StopReason

Decode = Callable[[list[int]], str]

#: Tokens kept before the part of the text that may still complete a stop string, so that a character or a leading
#: space cut by the window's edge cannot hide one.
MARGIN = 8


class Stopper:
    """Watches one sample. Call it with the tokens so far after each new one."""

    def __init__(self, params: SamplingParams, eos: Sequence[int], decode: Decode) -> None:
        self.ends = frozenset(params.stop_tokens) | (frozenset(eos) if params.stop_at_eos else frozenset())  #: tokens
        self._strings = tuple(string for string in params.stop_strings if string)
        self._longest = max(map(len, self._strings), default=0)
        self._max_tokens = params.max_tokens
        self._decode = decode
        self._start = 0  #: of the window of tokens whose text is still looked at

    def __call__(self, tokens: list[int]) -> StopReason | None:
        """Why the sample ends with its last token, or None to go on."""
        if tokens[-1] in self.ends or (self._strings and self._string_ended(tokens)):
            return StopReason.STOP
        return StopReason.LENGTH if len(tokens) >= self._max_tokens else None

    def _string_ended(self, tokens: list[int]) -> bool:
        text = self._decode(tokens[self._start :])
        if any(string in text for string in self._strings):
            return True
        if len(text) > 4 * self._longest + 64:
            self._advance(tokens)
        return False

    def _advance(self, tokens: list[int]) -> None:
        """Move the window's start as far as the text behind it still holds the longest stop string."""
        start = self._start + (len(tokens) - self._start) // 2
        if len(self._decode(tokens[start:])) >= self._longest:
            self._start = max(self._start, start - MARGIN)
