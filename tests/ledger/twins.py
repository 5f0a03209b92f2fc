"""A ledger in memory and one in Redis, asked the same."""

from typing import Any

from openrl.domain.errors import OpenRLError


def answer(ledger: Any, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An error is an answer too: its kind and its facts."""
    try:
        return getattr(ledger, verb)(*args, **kwargs)
    except OpenRLError as error:
        return type(error), error.args
