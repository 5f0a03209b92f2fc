"""Needs the package math-verify."""

from math_verify import parse, verify

from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.functions.fields import needed


@reward(version="1", pure=True, seconds=10.0, overrun=0.0)
def score(text: str, context: Words, params: Words) -> RewardResult:
    """1 where the answer in the text is mathematically equal to `context.answer` (LaTeX or plain). `parsed` tells
    whether the text had an answer at all."""
    answer = needed(context, "answer")
    gold = _parsed(answer) or _parsed(f"${answer}$")
    if not gold:
        raise FieldInvalid("context.answer", f"{answer[:200]!r} is no mathematical expression")
    said = _parsed(text)
    equal = bool(said) and verify(gold, said, timeout_seconds=None, raise_on_error=False)
    return RewardResult(float(equal), parts={"parsed": float(bool(said))})


def _parsed(text: str) -> list[object]:
    """Without the library's own alarm: this process is ended when it takes too long."""
    return list(parse(text, parsing_timeout=None, raise_on_error=False))
