"""What a row of the cache holds: the tokens of a prompt, and those that a sample drew after it. Knows no cache."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from openrl.domain.ids import DepotKey

Tokens = NDArray[np.int32]

#: A shorter common beginning is not worth a pass of its own.
LEAST = 32


@dataclass(slots=True, eq=False)
class Strand:
    """Tokens that have keys and values, or will have them, in one row of the cache, under one policy."""

    policy: DepotKey | None
    prompt: Tokens
    filled: int = 0  #: tokens of the prompt that have them
    drawn: list[int] = field(default_factory=list)  #: after the prompt; the last one has none yet
    last: Tensor | None = None  #: hidden state [width] of the prompt's last token
    place: int = -1  #: row in the cache; -1: none

    @property
    def length(self) -> int:
        """Tokens that have keys and values."""
        return len(self.prompt) + len(self.drawn) - 1 if self.drawn else self.filled

    def common(self, prompt: Tokens) -> int:
        """How many tokens the strand, once its prompt is computed, and a prompt begin with alike."""
        length = min(len(self.prompt), len(prompt))
        apart = self.prompt[:length] != prompt[:length]
        if apart.any():
            return int(apart.argmax())
        more = zip(self.drawn[:-1], prompt[length:].tolist(), strict=False) if length == len(self.prompt) else ()
        for count, (mine, other) in enumerate(more):
            if mine != other:
                return length + count
        return min(len(prompt), max(len(self.prompt), self.length))


def nearest(strands: Iterable[Strand], policy: DepotKey | None, prompt: Tokens) -> tuple[Strand | None, int]:
    """The strand that has most of a prompt's beginning, and how much; of equals the one that has been computed."""
    best, most, ready = None, 0, False
    for strand in strands:
        if strand.policy == policy and strand.prompt[0] == prompt[0]:
            common = strand.common(prompt)
            computed = strand.length >= common
            if (common, computed) > (most, ready):
                best, most, ready = strand, common, computed
    return best, most
