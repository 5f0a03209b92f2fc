import json
import math
import re
from string import punctuation, whitespace

from openrl.domain.errors import AnswerUnreadable
from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.functions.fields import as_json, number


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
    """By the last match of the pattern, or the answer as a whole."""
    found: str | None = answer
    if "pattern" in params:
        found = None
        for match in re.finditer(params["pattern"], answer):
            found = match[1]
    if found is None:
        return None
    return _label(found, params["labels"]) if "labels" in params else _number(found, params)


def _label(found: str, told: str) -> float | None:
    """Case means nothing, nor do spaces and signs around it."""
    labels = {label.strip().casefold(): float(value) for label, value in as_json("params.labels", told, dict).items()}
    word = found.strip().casefold()
    return labels.get(word, labels.get(word.strip(punctuation + whitespace)))


def _number(found: str, params: Words) -> float | None:
    try:
        value = number("", found.strip())
    except FieldInvalid:
        return None
    least, most = as_json("params.range", params.get("range", "[]"), list) or (-math.inf, math.inf)
    return value if least <= value <= most else None
