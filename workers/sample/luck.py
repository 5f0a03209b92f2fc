"""How a row's luck becomes a token, in one of two ways.

A row without a seed inverts the cumulated weights at one uniform number, which is cheap. A seeded row lets all tokens
race: each waits an exponential time drawn for (row, step, token), and the first relative to its weight wins. That is
the same distribution, and the winner hardly ever changes when logits move by rounding, as they do when others share the
batch; an inverted sum would drift away from the same luck within a few tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.sample.randomness import Words, keys, uniforms

#: Multipliers of a 32-bit mixer (murmur's) and an odd number that spreads token ids, as signed integers.
FIRST, SECOND, SPREAD = 0x85EBCA6B - 2**32, 0xC2B2AE35 - 2**32, 0x9E3779B1 - 2**32


class Luck:
    """The luck of a fixed set of rows."""

    def __init__(self, streams: Sequence[int], seeded: Sequence[bool]) -> None:
        self._streams: Words = np.array(streams, np.uint64)
        self._seeded: NDArray[np.bool_] = np.array(seeded, np.bool_)

    def pick(
        self, weights: Tensor, rows: NDArray[np.int64], steps: Words, attempt: int = 0, ids: Tensor | None = None
    ) -> Tensor:
        """For `rows` [m] of the set, with `steps` [m] tokens each, a column of `weights` [m, V] (not normalised), int64
        [m]. `ids` [m, V] are the columns' tokens where these are not 0 to V-1."""
        words, seeded = keys(self._streams[rows], steps, attempt), self._seeded[rows]
        if seeded.all():
            return race(weights, words, ids)
        picked = invert(weights.cumsum(-1), even(words, weights.device)[:, None])[:, 0]
        if seeded.any():
            some = torch.from_numpy(seeded.nonzero()[0]).to(weights.device)
            winners = race(weights[some], words[seeded], None if ids is None else ids[some])
            picked.index_copy_(0, some, winners)
        return picked


def even(words: Words, device: torch.device) -> Tensor:
    """Uniform numbers from 64-bit words; float32, as not every device knows more. Rounding may make one of them 1,
    which `invert` bears."""
    return torch.from_numpy(uniforms(words).astype(np.float32)).to(device)


def invert(cumulated: Tensor, luck: Tensor) -> Tensor:
    """Where uniform numbers [n, k] fall in cumulated weights [n, V] (not normalised), int64 [n, k]; a weight of 0 is
    never hit."""
    end = cumulated[:, -1:]
    aim = torch.minimum(luck * end, torch.nextafter(end, torch.zeros_like(end)))
    return torch.searchsorted(cumulated, aim, right=True).clamp_(max=cumulated.shape[-1] - 1)


def race(weights: Tensor, words: Words, ids: Tensor | None = None) -> Tensor:
    """The column of weights [m, V] that wins, int64 [m], by 64-bit words [m]; a weight of 0 never does."""
    tokens = torch.arange(weights.shape[-1], device=weights.device)[None] if ids is None else ids
    return (weights / waits(tokens, words)).argmax(-1)


def waits(tokens: Tensor, words: Words) -> Tensor:
    """Exponential times, float32 [m, V], for token ids int64 [1 or m, V] in rows of luck `words` [m]."""
    low, high = (torch.from_numpy(half).to(tokens.device)[:, None] for half in _halves(words))
    x = tokens.to(torch.int32) * SPREAD ^ low
    x = (x ^ (x >> 16 & 0xFFFF)) * FIRST
    x = (x ^ (x >> 13 & 0x7FFFF)) * SECOND + high
    x = (x ^ (x >> 16 & 0xFFFF)) * FIRST
    x = x ^ (x >> 13 & 0x7FFFF)
    return ((x >> 9 & 0x7FFFFF).float().add_(0.5).mul_(2.0**-23)).log_().neg_()


def _halves(words: Words) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    pairs = words.view(np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
