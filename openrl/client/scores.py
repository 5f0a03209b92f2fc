"""Scores as the client answers them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Score:
    value: float
    parts: dict[str, float] = field(default_factory=dict)  #: what the reward function measured on the way
    info: dict[str, str] = field(default_factory=dict)  #: for people


def scores_of(result: Mapping[str, Any]) -> list[Score]:
    """Parts and info are there for every value, or not at all."""
    values = result["values"]
    parts = result.get("parts") or [{}] * len(values)
    info = result.get("info") or [{}] * len(values)
    return [Score(float(value), *rest) for value, *rest in zip(values, parts, info, strict=True)]
