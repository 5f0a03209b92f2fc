import re

from openrl.rewards import FieldInvalid, Words, reward
from workers.reward.functions.fields import found


@reward(version="1", pure=True, overrun=0.0)
def score(text: str, context: Words, params: Words) -> float:
    """1 where the pattern (`context.pattern`, else `params.pattern`) is found in the text."""
    field, pattern = found(context, params, "pattern")
    try:
        return float(re.search(pattern, text) is not None)
    except (re.error, OverflowError, RecursionError) as error:
        raise FieldInvalid(field, f"{pattern[:200]!r} is not a regular expression: {error}") from None
