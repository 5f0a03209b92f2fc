"""Training examples and the losses they can be trained with."""

from dataclasses import dataclass, field
from enum import StrEnum

from openrl.domain.tensor import Tensor


class Loss(StrEnum):
    """Per-token losses, summed over tokens and datums; the formulas are in `workers/train/losses.py`."""

    CROSS_ENTROPY = "cross_entropy"
    IMPORTANCE_SAMPLING = "importance_sampling"
    PPO = "ppo"
    CISPO = "cispo"
    DRO = "dro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Datum:
    """One sequence of N input tokens. Position i of every loss input belongs to token i: targets are pre-shifted."""

    tokens: Tensor  #: int32 [N]
    inputs: dict[str, Tensor] = field(default_factory=dict)  #: by loss input name; shapes: `losses.RULES`

    @property
    def length(self) -> int:
        return self.tokens.elements
