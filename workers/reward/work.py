"""Reward ops, carried out: looks the function up and scores text by text, each within its time."""

import math
import time
from typing import Final

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.op import RewardOp, ScoreTexts
from openrl.domain.outcome import Scores
from openrl.ledger.port import Held
from workers.reward import functions
from workers.reward.alarm import TimeIsUp, within

#: What one tenant's pattern may cost the others, at most.
TEXT_SECONDS: Final = 2.0
OP_SECONDS: Final = 20.0


class RewardWork:
    def __call__(self, held: Held) -> Scores:
        assert isinstance(held.op, RewardOp) and isinstance(held.op.action, ScoreTexts)
        action = held.op.action
        score = functions.find(action.reward)
        pairs = zip(action.texts, action.contexts, strict=True)
        until = time.monotonic() + OP_SECONDS
        values = []
        for at, (text, context) in enumerate(pairs):
            seconds = min(TEXT_SECONDS, until - time.monotonic())
            values.append(_finite(_in_time(seconds, f"texts[{at}]", score, text, context, action.params)))
        return Scores(values=tuple(values))

    def abort(self, op_id: OpId) -> None:
        """Functions are quick; the one at work ends by itself."""

    def drain(self) -> None:
        """Celery's warm shutdown waits for the function at work."""


def _in_time(seconds: float, where: str, score: functions.RewardFunction, text: str, *words: functions.Words) -> float:
    try:
        with within(max(seconds, 0.001)):
            return score(text, *words)
    except TimeIsUp:
        problem = f"was not scored in time: a text gets {TEXT_SECONDS:g} s and a request {OP_SECONDS:g} s"
        raise FieldInvalid(where, f"{problem}; send fewer texts, or a simpler pattern") from None


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise FieldInvalid("reward", f"the function answered {value}, which is no score")
    return value
