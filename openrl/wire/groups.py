"""What a batch of rollouts tells: its state, and its groups as they finish. Pure."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from openrl.domain.outcome import Record
from openrl.domain.rollout import Dropped, Grade, Graded, RolledOut
from openrl.domain.sampling import Sequence
from openrl.domain.tensor import Tensor


def group_fields(number: int, samples: int, policy: str, sampled: Record | None, scored: Record) -> dict[str, Any]:
    """A settled group; arrays as numpy's. What could not be had is among the dropped, each with its reason."""
    rolled = sampled.result if sampled is not None and isinstance(sampled.result, RolledOut) else None
    graded = scored.result if isinstance(scored.result, Graded) else None
    grades = graded.grades if graded is not None and rolled is not None else ()
    return {
        "index": number,
        "id": scored.label,
        "prompt_tokens": [] if rolled is None else _array(rolled.prompt),
        "rollouts": [_rollout(grade, rolled) for grade in grades if rolled is not None],
        "dropped": [_dropped(each) for each in _lost(samples, sampled, scored)],
        "policy": policy,
        "timings": {
            "queued_seconds": 0.0 if rolled is None else rolled.queued_seconds,
            "sampled_seconds": 0.0 if rolled is None else rolled.sampled_seconds,
            "scored_seconds": 0.0 if graded is None else graded.scored_seconds,
        },
    }


def reward_fields(sums: Mapping[str, float]) -> dict[str, Any]:
    """Of all rollouts scored so far; null where there is none."""
    count = sums.get("done", 0.0)
    mean = sums.get("sum", 0.0) / count if count else None
    spread = None if mean is None else math.sqrt(max(0.0, sums.get("squares", 0.0) / count - mean * mean))
    parts = {name.removeprefix("parts:"): many for name, many in sums.items() if name.startswith("parts:")}
    return {
        "mean": mean,
        "std": spread,
        "min": sums.get("min"),
        "max": sums.get("max"),
        "parts": {name: sums[f"part:{name}"] / many for name, many in parts.items()},
    }


def dropped_by_reason(sums: Mapping[str, float], failed: Mapping[str, int], group_size: int) -> dict[str, int]:
    """Rollouts by the error that cost them; a group that ended without a result lost all of its."""
    counts = {error: groups * group_size for error, groups in failed.items()}
    for name, count in sums.items():
        if name.startswith("dropped:"):
            error = name.removeprefix("dropped:")
            counts[error] = counts.get(error, 0) + round(count)
    return counts


def _lost(samples: int, sampled: Record | None, scored: Record) -> tuple[Dropped, ...]:
    if isinstance(scored.result, Graded):
        if not scored.result.grades or (sampled is not None and isinstance(sampled.result, RolledOut)):
            return scored.result.dropped
        lost = "the group's samples are gone" if sampled is None or sampled.failure is None else sampled.failure.message
        return tuple(Dropped(sample=at, error="BytesLost", reason=lost) for at in range(samples))
    failure = scored.failure
    assert failure is not None, f"{scored.id} is {scored.status} without an ending"
    return tuple(Dropped(sample=at, error=failure.error, reason=failure.message) for at in range(samples))


def _dropped(dropped: Dropped) -> dict[str, Any]:
    return {"sample": dropped.sample, "error": dropped.error, "reason": dropped.reason}


def _rollout(grade: Grade, rolled: RolledOut) -> dict[str, Any]:
    sequence: Sequence = rolled.sequences[grade.sample]
    return {
        "sample": grade.sample,
        "tokens": _array(sequence.tokens),
        "logprobs": _array(sequence.logprobs),
        "text": rolled.texts[grade.sample],
        "stop_reason": str(sequence.stop_reason),
        "reward": grade.reward,
        "parts": grade.parts,
        "info": grade.info,
    }


def _array(tensor: Tensor) -> Any:
    return np.frombuffer(tensor.data, np.dtype(tensor.dtype).newbyteorder("<")).reshape(tensor.shape)
