"""Scores of pure functions, kept: those used last, up to a number of them."""

import threading
from collections import OrderedDict
from hashlib import blake2b
from json import dumps
from typing import Final

from openrl.rewards import RewardResult, Words

KEPT: Final = 20_000


class Memo:
    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._results: OrderedDict[bytes, RewardResult] = OrderedDict()

    def get(self, key: bytes) -> RewardResult | None:
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def put(self, key: bytes, result: RewardResult) -> None:
        with self._lock:
            self._results[key] = result
            if len(self._results) > self._kept:
                self._results.popitem(last=False)


def key_of(reward: str, version: str, text: str, context: Words, params: Words) -> bytes:
    parts = [reward, version, text, dict(context), dict(params)]
    return blake2b(dumps(parts, sort_keys=True).encode(), digest_size=16).digest()
