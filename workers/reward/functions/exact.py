from openrl.rewards import Words, reward
from workers.reward.functions.fields import flag, needed


@reward(version="1", pure=True)
def score(text: str, context: Words, params: Words) -> float:
    """1 where the text equals `context.answer`, spaces around both aside (and case, with `params.ignore_case`)."""
    left, right = text.strip(), needed(context, "answer").strip()
    if flag(params, "ignore_case"):
        left, right = left.casefold(), right.casefold()
    return float(left == right)
