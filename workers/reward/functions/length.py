from openrl.rewards import FieldInvalid, Words, reward
from workers.reward.functions.fields import choice, whole


@reward(version="1", pure=True)
def score(text: str, context: Words, params: Words) -> float:
    """1 while the text is `params.least` to `params.most` long, less and less to 0 over the next `params.slack`, in
    `params.unit`: words (the default) or characters."""
    size = len(text.split()) if choice(params, "unit", ("words", "characters")) == "words" else len(text)
    if "most" not in params:
        raise FieldInvalid("params.most", "is missing; this reward function needs it")
    least, most, slack = whole(params, "least", 0), whole(params, "most", 0), whole(params, "slack", 0)
    if least > most:
        raise FieldInvalid("params.least", f"is {least}, above params.most, {most}")
    outside = max(least - size, size - most, 0)
    return max(0.0, 1.0 - outside / (slack + 1))
