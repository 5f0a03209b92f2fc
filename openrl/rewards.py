"""Reward functions: what one is, and how a module of yours declares its own.

    from openrl.rewards import FieldInvalid, RewardResult, reward

    @reward(version="1", pure=True)
    def score(text: str, context: dict[str, str], params: dict[str, str]) -> float:
        return float(text.strip() == context["answer"])

It is found through the entry points `openrl.rewards` of an installed package. Functions run in a sandbox
(docs/howto/rewards.md). One that cannot use a context or parameter raises FieldInvalid with `context.NAME` or
`params.NAME`; one that cannot score must raise, never answer zero.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from openrl.domain.errors import FieldInvalid

__all__ = ["ENTRY_POINTS", "Declared", "FieldInvalid", "RewardFunction", "RewardResult", "Words", "declared", "reward"]

ENTRY_POINTS: Final = "openrl.rewards"
Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RewardResult:
    value: float
    parts: dict[str, float] = field(default_factory=dict)  #: what the value is made of, or what else was measured
    info: dict[str, str] = field(default_factory=dict)  #: for people


class RewardFunction(Protocol):
    def __call__(self, text: str, context: Words, params: Words, /) -> float | RewardResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a function says of itself."""

    version: str = "0"  #: a new one for every change of what it answers
    pure: bool = False  #: the same text, context and params always score the same, so that a score may be kept
    executes: bool = False  #: lets the model's code run: its child scores one op and is thrown away
    fresh: bool = False  #: its child scores one op and is thrown away, whatever it does there
    seconds: float = 2.0  #: that one text may take
    overrun: float | None = None  #: what a text scores that takes the processor for longer; None: it has no score


def reward(
    *,
    version: str = "0",
    pure: bool = False,
    executes: bool = False,
    fresh: bool = False,
    seconds: float = 2.0,
    overrun: float | None = None,
) -> Callable[[RewardFunction], RewardFunction]:
    """Declare a reward function; one without a declaration has the defaults."""
    facts = Declared(version=version, pure=pure, executes=executes, fresh=fresh, seconds=seconds, overrun=overrun)

    def declare(function: RewardFunction) -> RewardFunction:
        function.declared = facts  # type: ignore[attr-defined]  # read by `declared` alone
        return function

    return declare


def declared(function: RewardFunction) -> Declared:
    facts = getattr(function, "declared", Declared())
    assert isinstance(facts, Declared)
    return facts
