import re
from typing import Final

from openrl.rewards import Words, reward
from workers.reward.functions.fields import needed, number

_NUMBER: Final = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


@reward(version="1", pure=True, overrun=0.0)
def score(text: str, context: Words, params: Words) -> float:
    """1 where the last number in the text equals `context.answer`, within `params.tolerance` (absolute, 1e-6)."""
    answer = number("context.answer", needed(context, "answer"))
    tolerance = number("params.tolerance", params.get("tolerance", "1e-6"), least=0)
    found = _NUMBER.findall(text)
    if not found:
        return 0.0
    return float(abs(float(found[-1].replace(",", "")) - answer) <= tolerance)
