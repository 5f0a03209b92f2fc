import json
import math
import re
from typing import Final

from openrl.domain.reward_errors import AnswerUnreadable
from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.functions.fields import as_json, number

_NUMBER: Final = r"(?<![\w.])([-+]?(?:\d+\.?\d*|\.\d+))(?![\w])"


@reward(version="1", pure=True)
def score(text: str, context: Words, params: Words) -> RewardResult:
    """What a judge says of a rollout, as a number. The text is JSON: all of the judge's answers. The value is the mean
    of those that can be read; where none can, that is an error."""
    answers: list[str] = json.loads(text)
    read = [(value, answer) for answer in answers if (value := _read(answer, params)) is not None]
    if not read:
        raise AnswerUnreadable(answers[0][-300:])
    mean = math.fsum(value for value, _ in read) / len(read)
    return RewardResult(mean, {"read": len(read) / len(answers)}, {"answer": read[0][1]})


def _read(answer: str, params: Words) -> float | None:
    """By the last match of the pattern."""
    labels = _labels(params)
    found = None
    for match in re.finditer(params.get("pattern", _NUMBER if labels is None else _any_of(labels)), answer):
        found = match[1]
    if found is None:
        return None
    return _number(found, params) if labels is None else labels.get(found.strip().casefold())


def _labels(params: Words) -> dict[str, float] | None:
    if "labels" not in params:
        return None
    labels = as_json("params.labels", params["labels"], dict)
    return {label.strip().casefold(): float(value) for label, value in labels.items()}


def _any_of(labels: dict[str, float]) -> str:
    """A label that stands alone, in any case; the longest where one begins with another."""
    words = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))
    return rf"(?i)(?<!\w)({words})(?!\w)"


def _number(found: str, params: Words) -> float | None:
    try:
        value = number("", found)
    except FieldInvalid:
        return None
    least, most = as_json("params.range", params.get("range", "[]"), list) or (-math.inf, math.inf)
    return value if least <= value <= most else None
