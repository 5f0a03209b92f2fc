"""Where a sample's luck comes from: one uniform number per (stream, step), computed from a counter.

No generator state: a request that is retried, or that shares its batch with others, draws the same numbers again. The
mixing is splitmix64's finaliser, which is cheap and passes the usual statistical batteries.
"""

import secrets

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  #: 2^64 / golden ratio, odd: successive counters land far apart
STEP = np.uint64(GOLDEN)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def stream(seed: int | None, sample: int) -> int:
    """The 64-bit stream of one sample of a request; without a seed a fresh one each time."""
    if seed is None:
        return secrets.randbits(64)
    mixed = _mix(np.array([seed & MASK], np.uint64))
    apart = (mixed + np.array([(sample + 1) * GOLDEN & MASK], np.uint64)).astype(np.uint64)
    return int(_mix(apart)[0])


def uniforms(streams: NDArray[np.uint64], steps: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), float64 [n], for streams and token counts [n]."""
    bits: NDArray[np.uint64] = _mix(streams + (steps + np.uint64(1)) * STEP) >> S11
    return bits.astype(np.float64) * 2.0**-53


def again(streams: NDArray[np.uint64], attempt: int) -> NDArray[np.uint64]:
    """Further streams [n] of the same samples, for draws that have to be repeated within a step."""
    return _mix(streams ^ np.uint64((attempt + 1) * GOLDEN & MASK))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> S30)) * FIRST
    x = (x ^ (x >> S27)) * SECOND
    mixed: NDArray[np.uint64] = x ^ (x >> S31)
    return mixed
