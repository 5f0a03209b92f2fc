"""Answers remembered for a while. Knows nothing of what they mean."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memo(Generic[Key, Value]):
    """The last `size` answers, each for `seconds`. Errors are not remembered. Thread-safe; two threads may make the
    same answer at the same time."""

    def __init__(self, seconds: float, size: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._size, self._clock = seconds, size, clock
        self._kept: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._lock = Lock()

    def known(self, key: Key) -> Value | None:
        """What is remembered, without making it."""
        with self._lock:
            until, value = self._kept.get(key, (0.0, None))
        return value if until > self._clock() else None

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """What is remembered, or else what `make` answers now."""
        known = self.known(key)
        return known if known is not None else self.keep(key, make())

    def keep(self, key: Key, value: Value) -> Value:
        with self._lock:
            self._kept[key] = (self._clock() + self._seconds, value)
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return value
