from functools import lru_cache
from typing import Any

from openrl.rewards import FieldInvalid, RewardFunction, RewardResult, Words, reward


@reward(version="1", fresh=True, seconds=5.0)
def score(text: str, context: Words, params: Words) -> float | RewardResult:
    """What the `score` of `params.source` answers, which gets the other parameters. It has this process to itself."""
    others = {name: word for name, word in params.items() if name != "source"}
    return _function(params.get("source", ""))(text, context, others)


@lru_cache(maxsize=1)
def _function(source: str) -> RewardFunction:
    module: dict[str, Any] = {"__name__": "source"}
    try:
        exec(compile(source, "<source>", "exec", dont_inherit=True), module)
    except Exception as error:
        raise FieldInvalid("params.source", f"cannot be run: {type(error).__name__}: {error}") from None
    if not callable(module.get("score")):
        raise FieldInvalid("params.source", "defines no function score(text, context, params)")
    function: RewardFunction = module["score"]
    return function
