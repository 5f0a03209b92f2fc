"""Reward functions by name. A function scores one text in its context: `score(text, context, params) -> float`.

They are pure and quick, and raise FieldInvalid for a context or parameter they cannot use: a reward that cannot be
computed is an error, never a zero.
"""

import math
import re
from collections.abc import Callable, Mapping

from openrl.domain.errors import FieldInvalid, RewardUnknown

Words = Mapping[str, str]
RewardFunction = Callable[[str, Words, Words], float]

_registry: dict[str, RewardFunction] = {}


def reward(name: str) -> Callable[[RewardFunction], RewardFunction]:
    """Register a function under a name."""

    def enter(function: RewardFunction) -> RewardFunction:
        assert name not in _registry, f"two reward functions named {name}"
        _registry[name] = function
        return function

    return enter


def find(name: str) -> RewardFunction:
    try:
        return _registry[name]
    except KeyError:
        raise RewardUnknown(name, names()) from None


def names() -> tuple[str, ...]:
    return tuple(sorted(_registry))


def needed(words: Words, where: str, key: str) -> str:
    """A word that must be there."""
    if key not in words:
        raise FieldInvalid(f"{where}.{key}", "is missing; this reward function needs it")
    return words[key]


@reward("exact")
def exact(text: str, context: Words, params: Words) -> float:
    """1 where the text equals `context.answer`, spaces around both aside (and case, with `params.ignore_case=true`)."""
    left, right = text.strip(), needed(context, "contexts[]", "answer").strip()
    if params.get("ignore_case") == "true":
        left, right = left.casefold(), right.casefold()
    return float(left == right)


@reward("regex")
def regex(text: str, context: Words, params: Words) -> float:
    """1 where the pattern (`context.pattern`, else `params.pattern`) is found in the text."""
    where = "contexts[]" if "pattern" in context else "params"
    pattern = needed(context if "pattern" in context else params, where, "pattern")
    try:
        return float(re.search(pattern, text) is not None)
    except (re.error, OverflowError, RecursionError) as error:
        raise FieldInvalid(f"{where}.pattern", f"{pattern[:200]!r} is not a regular expression: {error}") from None


@reward("numeric")
def numeric(text: str, context: Words, params: Words) -> float:
    """1 where the last number in the text equals `context.answer`, within `params.tolerance` (absolute, 1e-6)."""
    answer = _number("contexts[].answer", needed(context, "contexts[]", "answer"))
    tolerance = _number("params.tolerance", params.get("tolerance", "1e-6"))
    if tolerance < 0:
        raise FieldInvalid("params.tolerance", f"is {tolerance:g}; it must be at least 0")
    found = re.findall(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", text)
    if not found:
        return 0.0
    return float(abs(float(found[-1].replace(",", "")) - answer) <= tolerance)


def _number(field: str, word: str) -> float:
    try:
        value = float(word.replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FieldInvalid(field, f"{word!r} is not a number")
    return value
