"""Who is at work, and which base models this deployment serves. Knows no ops.

A worker announces itself again before its time runs out. The card of a model outlives the worker, so that requests are
taken while it restarts.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import resources
from typing import Final, Protocol

import msgspec
import redis

from openrl.domain.ids import WorkerId
from openrl.domain.model import ModelCard
from openrl.domain.worker import Role, WorkerInfo
from openrl.ledger.outage import told_apart

CARD_SECONDS: Final = 24 * 3600.0  #: how long after the last announcement a model still counts as served

_WORKERS = msgspec.json.Decoder(WorkerInfo)
_CARDS = msgspec.json.Decoder(ModelCard)


class Roster(Protocol):
    def announce(self, worker: WorkerInfo, ttl_seconds: float) -> None:
        """The worker is alive, for `ttl_seconds` from now; its cards for CARD_SECONDS."""
        ...

    def leave(self, worker: WorkerId) -> None:
        """The worker is gone. Its models are served on: it may be restarting."""
        ...

    def withdraw(self, model: str) -> None:
        """The model of that canonical name is no longer served, until a worker announces it again."""
        ...

    def workers(self) -> list[WorkerInfo]:
        """Those alive, by id."""
        ...

    def cards(self) -> list[ModelCard]:
        """One for each model served, by name."""
        ...


class RedisRoster:
    """A `Roster` in Redis, on the server's clock; one round trip per call."""

    def __init__(
        self, client: redis.Redis, prefix: str = "openrl:", *, clock_offset: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._client, self._prefix, self._clock_offset = client, prefix, clock_offset
        self._announce = client.register_script((resources.files("openrl.ledger") / "announce.lua").read_text())

    def announce(self, worker: WorkerInfo, ttl_seconds: float) -> None:
        cards = [part for card in worker.cards for part in (_entry(worker.role, card.name), msgspec.json.encode(card))]
        args = (self._clock_offset(), worker.id, msgspec.json.encode(worker), ttl_seconds, CARD_SECONDS, *cards)
        with told_apart():
            self._announce(keys=(self._prefix,), args=args)

    def leave(self, worker: WorkerId) -> None:
        self._forget("workers", str(worker))

    def withdraw(self, model: str) -> None:
        self._forget("cards", *(_entry(role, model) for role in Role))

    def workers(self) -> list[WorkerInfo]:
        return [_WORKERS.decode(info) for info in self._standing("workers")]

    def cards(self) -> list[ModelCard]:
        return merged(_CARDS.decode(card) for card in self._standing("cards"))

    def _forget(self, what: str, *names: str) -> None:
        pipeline = self._client.pipeline()
        pipeline.hdel(self._prefix + what, *names)
        pipeline.zrem(f"{self._prefix}{what}_until", *names)
        with told_apart():
            pipeline.execute()

    def _standing(self, what: str) -> list[bytes]:
        """What was announced and still holds, in the order of its names."""
        pipeline = self._client.pipeline()
        pipeline.time()
        pipeline.zrange(f"{self._prefix}{what}_until", 0, -1, withscores=True)
        pipeline.hgetall(self._prefix + what)
        with told_apart():
            (seconds, micros), until, announced = pipeline.execute()
        now = seconds + micros / 1e6 + self._clock_offset()
        return [announced[name] for name in sorted(name for name, end in until if end > now)]


class MemoryRoster:
    """A `Roster` in memory: a double for tests."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._workers: dict[WorkerId, tuple[float, WorkerInfo]] = {}
        self._cards: dict[tuple[Role, str], tuple[float, ModelCard]] = {}

    def announce(self, worker: WorkerInfo, ttl_seconds: float) -> None:
        self._workers[worker.id] = (self._clock() + ttl_seconds, worker)
        for card in worker.cards:
            self._cards[worker.role, card.name] = (self._clock() + CARD_SECONDS, card)

    def leave(self, worker: WorkerId) -> None:
        self._workers.pop(worker, None)

    def withdraw(self, model: str) -> None:
        for role in Role:
            self._cards.pop((role, model), None)

    def workers(self) -> list[WorkerInfo]:
        return [info for _, (until, info) in sorted(self._workers.items()) if until > self._clock()]

    def cards(self) -> list[ModelCard]:
        return merged(card for until, card in self._cards.values() if until > self._clock())


def merged(cards: Iterable[ModelCard]) -> list[ModelCard]:
    """One card for each model, by name: it can be trained or sampled where any worker can do that."""
    models: dict[str, ModelCard] = {}
    for card in cards:
        other = models.get(card.name, card)
        models[card.name] = replace(
            card,
            trainable=card.trainable or other.trainable,
            sampleable=card.sampleable or other.sampleable,
            full_runs=card.full_runs or other.full_runs,
        )
    return [models[name] for name in sorted(models)]


def _entry(role: Role, model: str) -> str:
    """Workers of different roles tell different things of one model."""
    return f"{role}:{model}"
