"""Reward ops, carried out: looks the function up and scores text by text."""

import math

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.op import RewardOp
from openrl.domain.outcome import Scores
from workers.reward import functions


class RewardWork:
    def __call__(self, op: RewardOp) -> Scores:
        action = op.action
        score = functions.find(action.reward)
        pairs = zip(action.texts, action.contexts, strict=True)
        return Scores(values=tuple(_finite(score(text, context, action.params)) for text, context in pairs))

    def abort(self, op_id: OpId) -> None:
        """Functions are quick; the one at work ends by itself."""

    def drain(self) -> None:
        """Celery's warm shutdown waits for the function at work."""


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise FieldInvalid("reward", f"the function answered {value}, which is no score")
    return value
