"""Which waiting batches share the next pack. Pure: knows their sizes and whose they are, but no device, clock or lock.

Tenants and then the runs of a tenant take turns in tokens (see `rotation.py`): so over time tenants get the same number
of tokens, however large their batches are, and a small batch is not kept waiting by somebody's many large ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from workers.rotation import Rotation

T = TypeVar("T")

#: A pack has room for as many quanta: so many tenants share it when all of them have much to do.
SHARES = 8


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    item: T
    tokens: int


class Rota(Generic[T]):
    """What waits, in packs of at most `pack_tokens` tokens; a larger batch is a pack by itself. A pack ends early where
    `enough` says so of its tokens and batches: whose turn comes next goes on in the pack after."""

    def __init__(self, pack_tokens: int, enough: Callable[[int, int], bool] = lambda tokens, batches: False) -> None:
        self._enough, self._pack_tokens = enough, pack_tokens
        self._rotation: Rotation[_Entry[T]] = Rotation(max(1, pack_tokens // SHARES))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, item: T, *, tenant: str, run: str, tokens: int) -> None:
        """Behind everything that waits of its run."""
        self._rotation.add(_Entry(item, tokens), tenant=tenant, line=run)
        self._count += 1

    def next_pack(self) -> list[T]:
        """Take out what goes next; empty only when nothing waits. Whose turn it was but did not fit in goes first in
        the pack after."""
        pack: list[T] = []
        left = self._pack_tokens
        self._rotation.new_round()
        while (entry := self._rotation.first()) is not None:
            if pack and entry.tokens > left:
                self._rotation.pass_over()
            elif pack and self._enough(self._pack_tokens - left, len(pack)):
                break
            else:
                left -= entry.tokens
                pack.append(self._take(entry))
        return pack

    def clear(self) -> list[T]:
        """Take out everything."""
        self._rotation.new_round()
        items: list[T] = []
        while (entry := self._rotation.first()) is not None:
            items.append(self._take(entry))
        return items

    def _take(self, entry: _Entry[T]) -> T:
        self._rotation.charge(entry.tokens, gone=True)
        self._count -= 1
        return entry.item
