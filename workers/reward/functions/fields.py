"""Words of a context or of the parameters, read as what they should be. Each raises FieldInvalid by the word's name."""

import json
import math
from typing import Any

from openrl.rewards import FieldInvalid, Words

_WORDS = 200  #: of a wrong value that is told


def needed(context: Words, key: str) -> str:
    """A word of the context that must be there."""
    if key not in context:
        raise FieldInvalid(f"context.{key}", "is missing; this reward function needs it")
    return context[key]


def found(context: Words, params: Words, key: str) -> tuple[str, str]:
    """A word of the context, else of the parameters, behind its name."""
    if key in context:
        return f"context.{key}", context[key]
    if key in params:
        return f"params.{key}", params[key]
    raise FieldInvalid(f"params.{key}", "is missing, in the contexts too; this reward function needs it")


def flag(params: Words, key: str) -> bool:
    word = params.get(key, "false")
    if word not in ("true", "false"):
        raise FieldInvalid(f"params.{key}", f"is {word[:_WORDS]!r}; it must be true or false")
    return word == "true"


def number(field: str, word: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    try:
        value = float(word.replace(",", ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FieldInvalid(field, f"{word[:_WORDS]!r} is not a number")
    if not least <= value <= most:
        bounds = f"at least {least:g}" if most == math.inf else f"within {least:g} and {most:g}"
        raise FieldInvalid(field, f"is {value:g}; it must be {bounds}")
    return value


def whole(params: Words, key: str, default: int, *, least: int = 0, most: float = math.inf) -> int:
    value = number(f"params.{key}", params.get(key, str(default)), least=least, most=most)
    if value != int(value):
        raise FieldInvalid(f"params.{key}", f"is {value:g}; it must be a whole number")
    return int(value)


def choice(params: Words, key: str, options: tuple[str, ...]) -> str:
    """One of the options; the first where nothing is said."""
    word = params.get(key, options[0])
    if word not in options:
        raise FieldInvalid(f"params.{key}", f"is {word[:_WORDS]!r}; it must be one of {', '.join(options)}")
    return word


def as_json(field: str, word: str, *shapes: type) -> Any:
    """JSON text, of one of the shapes."""
    try:
        value = json.loads(word)
    except (ValueError, RecursionError) as error:
        raise FieldInvalid(field, f"is not JSON: {error}") from None
    if not isinstance(value, shapes):
        names = {"dict": "an object", "list": "a list", "bool": "true or false", "str": "a string"}
        raise FieldInvalid(field, f"must be {' or '.join(names[shape.__name__] for shape in shapes)}")
    return value
