"""The requests of the sampling benches: lengths and arrivals fixed by a seed, prompts new in each round, so that no
side can keep one from the round before. Standard library only."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

PROMPT_TOKENS, COMPLETION_TOKENS = (16, 256), (16, 128)
FIRST_ID = 10  #: below are tokens with a meaning of their own


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion of exactly `max_tokens` tokens: nothing ends it early."""

    prompt: tuple[int, ...]
    max_tokens: int
    at: float = 0.0  #: seconds from the start to its arrival
    policy: int | None = None  #: the adapter's number; None is the base model


def asks(count: int, vocab: int, *, round_: int = 0, spread: float = 0.0) -> list[Ask]:
    """`count` asks that come within `spread` seconds, in the order in which they come, the first at once."""
    shape, content = random.Random(count), random.Random(1 + round_)
    arrivals = sorted(shape.random() for _ in range(count))
    return [
        Ask(
            prompt=tuple(content.choices(range(FIRST_ID, vocab), k=shape.randint(*PROMPT_TOKENS))),
            max_tokens=shape.randint(*COMPLETION_TOKENS),
            at=spread * (at - arrivals[0]),
        )
        for at in arrivals
    ]


def over_policies(some: Iterable[Ask], policies: int) -> list[Ask]:
    """The same asks shared out evenly to the base model and so many adapters."""
    places = [None, *range(policies)]
    return [replace(ask, policy=places[index % len(places)]) for index, ask in enumerate(some)]


def probes(count: int, vocab: int, *, round_: int, seconds: float) -> list[Ask]:
    """Asks for one token, evenly over so many seconds; their prompts are as long as all are."""
    some = asks(count, vocab, round_=round_)
    return [replace(ask, max_tokens=1, at=seconds * index / count) for index, ask in enumerate(some)]


def tokens(some: Iterable[Ask]) -> int:
    """Useful tokens: those asked for."""
    return sum(ask.max_tokens for ask in some)


def to_plain(some: Sequence[Ask]) -> list[dict[str, Any]]:
    return [asdict(ask) for ask in some]


def from_plain(some: Sequence[dict[str, Any]]) -> list[Ask]:
    return [Ask(**{**ask, "prompt": tuple(ask["prompt"])}) for ask in some]


class Arrivals:
    """Lets asks in when their time has come and, where a bound on those in flight is given, there is room."""

    def __init__(self, some: Sequence[Ask], in_flight: int | None) -> None:
        self._coming, self._bound = list(enumerate(some))[::-1], in_flight
        self.came = [ask.at for ask in some]  #: seconds from the start, as far as they came; a bound holds them back

    def due(self, seconds: float, running: int) -> list[tuple[int, Ask]]:
        """Those to start now with their places, `seconds` after the start and with so many running."""
        room = len(self.came) if self._bound is None else self._bound - running
        started: list[tuple[int, Ask]] = []
        while self._coming and self._coming[-1][1].at <= seconds and len(started) < room:
            started.append(self._coming.pop())
            self.came[started[-1][0]] = seconds if self._bound is not None else started[-1][1].at
        return started

    def next(self) -> float | None:
        """When the next one comes, in seconds from the start; None after the last."""
        return self._coming[-1][1].at if self._coming else None
