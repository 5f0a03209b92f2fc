"""Where a sample's luck comes from: 64 random bits per (stream, step, attempt), computed from a counter.

No generator state: a request that is retried, or that shares its batch with others, has the same luck again. The
mixing is splitmix64's finaliser, which is cheap and passes the usual statistical batteries.
"""

import secrets

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  #: 2^64 / golden ratio, odd: successive counters land far apart
STEP = np.uint64(GOLDEN)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def stream(seed: int | None, sample: int) -> int:
    """The 64-bit stream of one sample of a request; without a seed a fresh one each time."""
    if seed is None:
        return secrets.randbits(64)
    apart = int(_mix(np.array([seed & MASK], np.uint64))[0]) + (sample + 1) * GOLDEN
    return int(_mix(np.array([apart & MASK], np.uint64))[0])


def keys(streams: Words, steps: Words, attempt: int = 0) -> Words:
    """Random bits for streams [n] at token counts [n]; `attempt` counts draws that had to be repeated in a step."""
    if attempt:
        streams = _mix(streams ^ np.uint64(attempt * GOLDEN & MASK))
    return _mix(streams + (steps + np.uint64(1)) * STEP)


def uniforms(words: Words) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from random bits."""
    return (words >> S11).astype(np.float64) * 2.0**-53


def _mix(x: Words) -> Words:
    x = (x ^ (x >> S30)) * FIRST
    x = (x ^ (x >> S27)) * SECOND
    mixed: Words = x ^ (x >> S31)
    return mixed
