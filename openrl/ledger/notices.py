"""Who waits for which op, and how they are told: one thread and one pubsub connection per process, however many wait.

A wake is only a hint to read the ledger, so nothing here must be exact, but nothing may be missed: after every
reconnection, and every few seconds besides, all ops waited for are looked up in one round trip.
"""

import logging
import time
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from typing import Final

import redis

from openrl.domain.ids import BatchId, OpId
from openrl.domain.op import SETTLED
from openrl.ledger.keys import Keys
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.records import statuses

log = logging.getLogger(__name__)

Wake = Callable[[], None]

LOOK_EVERY_SECONDS: Final = 5.0
LISTEN_SECONDS: Final = 0.2  #: how long one read of the channel blocks, and so how long `close` may take
RECONNECT_SECONDS: Final = (0.05, 0.1, 0.2, 0.5)  #: pauses after a lost connection; the last one repeats


class Waiters:
    """Callbacks by op. Does no I/O; safe between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wakes: dict[OpId | BatchId, list[Wake]] = {}

    def add(self, op_id: OpId | BatchId, wake: Wake) -> Callable[[], None]:
        """Returns a function that takes the callback away again."""
        with self._lock:
            self._wakes.setdefault(op_id, []).append(wake)
        return lambda: self._remove(op_id, wake)

    def _remove(self, op_id: OpId | BatchId, wake: Wake) -> None:
        with self._lock:
            wakes = self._wakes.get(op_id, [])
            if wake in wakes:
                wakes.remove(wake)
            if not wakes:
                self._wakes.pop(op_id, None)

    def wake(self, op_id: OpId | BatchId) -> None:
        with self._lock:
            wakes = self._wakes.pop(op_id, ())
        for wake in wakes:
            try:
                wake()
            except Exception:  # one waiter's fault, often an event loop closed meanwhile, must not silence the others
                log.warning("a waiter could not be woken", exc_info=True, extra={"action": "wake", "op": op_id})

    def ops(self) -> list[OpId]:
        """Batches too, which no ledger knows as ops."""
        with self._lock:
            return [OpId(waited) for waited in self._wakes]


class RedisNotices:
    """`Notices` over the channel on which a RedisLedger of the same prefix publishes."""

    def __init__(self, client: redis.Redis, prefix: str = "openrl:") -> None:
        self._client, self._keys = client, Keys(prefix)
        self._waiters = Waiters()
        self._closed = Event()
        self._look_at = 0.0  #: on the monotonic clock
        self._thread = Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def subscribe(self, op_id: OpId | BatchId, wake: Wake) -> Callable[[], None]:
        return self._waiters.add(op_id, wake)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                for _ in self._listen():
                    failures = 0
            except redis.RedisError as error:
                pause = RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)]
                failures += 1
                log.warning("notices cut off, trying again: %s", error, extra={"action": "listen"})
                self._closed.wait(pause)

    def _listen(self) -> Iterator[None]:
        """Yields after each successful step, until closed."""
        with self._client.pubsub() as channel:  # type: ignore[no-untyped-call]  # redis-py has no types here
            channel.subscribe(self._keys.settled)
            while not self._closed.is_set():
                message = channel.get_message(timeout=LISTEN_SECONDS)
                if message is not None and message["type"] == "message":
                    self._waiters.wake(OpId(message["data"].decode()))
                elif message is not None and message["type"] == "subscribe":
                    self._look()  # also after a reconnection inside the client: something may have been missed
                if time.monotonic() >= self._look_at:
                    self._look()
                yield

    def _look(self) -> None:
        """Wake those whose ops have settled, or are not known (any more)."""
        waited_for = self._waiters.ops()
        known = statuses(self._client, self._keys, waited_for)
        for op_id in waited_for:
            if known.get(op_id) is None or known[op_id] in SETTLED:
                self._waiters.wake(op_id)
        self._look_at = time.monotonic() + LOOK_EVERY_SECONDS


class MemoryNotices:
    """`Notices` of a MemoryLedger."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._waiters = Waiters()
        self._told = ledger.on_settled
        self._told.append(self._waiters.wake)

    def subscribe(self, op_id: OpId | BatchId, wake: Wake) -> Callable[[], None]:
        return self._waiters.add(op_id, wake)

    def close(self) -> None:
        self._told.remove(self._waiters.wake)
