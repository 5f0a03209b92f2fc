"""What reward functions answer, made plain: bounded numbers and bounded words."""

import math
from collections.abc import Sequence
from typing import Any, Final

from openrl.domain.outcome import Scores
from openrl.rewards import RewardResult

WORDS: Final = 500  #: characters of an error, or of a word of info, that are told
MOST: Final = 1e100  #: of a number, above and below zero: squares of many still add up
_NAMES: Final = 32  #: of parts, and of words of info
_NAME_CHARS: Final = 200  #: of each, since a batch keeps sums by them


def plain(result: RewardResult) -> dict[str, Any]:
    """Raises ValueError for a number that is none, or too much of it."""
    if max(len(result.parts), len(result.info)) > _NAMES:
        raise ValueError(f"it answered more than {_NAMES} parts or words of info")
    value, parts = float(result.value), {legible(name): float(part) for name, part in result.parts.items()}
    for number in (value, *parts.values()):
        if not math.isfinite(number) or abs(number) > MOST:
            raise ValueError(f"it answered {number}, which is no score; one is within {MOST:g} of zero")
    if any(len(name) > _NAME_CHARS for name in map(str, (*result.parts, *result.info))):
        raise ValueError(f"it answered a name of more than {_NAME_CHARS} characters")
    info = {legible(name): legible(word)[:WORDS] for name, word in result.info.items()}
    return {"value": value, "parts": parts, "info": info}


def legible(word: object) -> str:
    """As UTF-8 can spell it: half of a surrogate pair, which model output may bring into a word, becomes `?`."""
    return str(word).encode("utf-8", "replace").decode()


def scores_of(results: Sequence[RewardResult]) -> Scores:
    """Parts and info only where there are any."""
    parts = tuple(result.parts for result in results)
    info = tuple(result.info for result in results)
    values = tuple(result.value for result in results)
    return Scores(values=values, parts=parts if any(parts) else (), info=info if any(info) else ())
