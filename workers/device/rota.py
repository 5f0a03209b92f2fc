"""Which waiting batches share the next pack. Pure: knows their sizes and whose they are, but no device, clock or lock.

Deficit round robin in tokens, between tenants and then between the runs of a tenant: whoever is passed earns a quantum
of credit and goes as soon as its credit covers its first batch. So over time tenants get the same number of tokens,
however large their batches are, and a small batch is not kept waiting by somebody's many large ones.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

#: A pack has room for as many quanta: so many tenants share it when all of them have much to do.
SHARES = 8


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    item: T
    tokens: int


@dataclass(slots=True)
class _Run(Generic[T]):
    entries: deque[_Entry[T]] = field(default_factory=deque)
    credit: int = 0  #: tokens it may take


@dataclass(slots=True)
class _Tenant(Generic[T]):
    """Never without a run, and no run without an entry."""

    runs: dict[str, _Run[T]] = field(default_factory=dict)  #: the next one in front
    credit: int = 0

    def first(self, quantum: int) -> _Entry[T]:
        """The entry whose turn it is here; the same one until it is taken."""
        while True:
            name, run = next(iter(self.runs.items()))
            entry = run.entries[0]
            if run.credit < entry.tokens:
                run.credit += quantum
            if run.credit >= entry.tokens:
                return entry
            self.runs[name] = self.runs.pop(name)

    def take(self) -> None:
        """The first entry goes. A run with nothing left keeps no credit; one with too little goes behind the others."""
        name, run = next(iter(self.runs.items()))
        tokens = run.entries.popleft().tokens
        self.credit -= tokens
        run.credit -= tokens
        if not run.entries:
            del self.runs[name]
        elif run.credit < run.entries[0].tokens:
            self.runs[name] = self.runs.pop(name)


class Rota(Generic[T]):
    """What waits, in packs of at most `pack_tokens` tokens; a larger batch is a pack by itself. A pack ends early where
    `enough` says so of its tokens and batches: whose turn comes next goes on in the pack after."""

    def __init__(self, pack_tokens: int, enough: Callable[[int, int], bool] = lambda tokens, batches: False) -> None:
        self._enough = enough
        self._pack_tokens, self._quantum = pack_tokens, max(1, pack_tokens // SHARES)
        self._tenants: dict[str, _Tenant[T]] = {}  #: the next one in front
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, item: T, *, tenant: str, run: str, tokens: int) -> None:
        """Behind everything that waits of its run."""
        runs = self._tenants.setdefault(tenant, _Tenant()).runs
        runs.setdefault(run, _Run()).entries.append(_Entry(item, tokens))
        self._count += 1

    def next_pack(self) -> list[T]:
        """Take out what goes next; empty only when nothing waits. Whose turn it was but did not fit in goes first in
        the pack after."""
        pack: list[T] = []
        left = self._pack_tokens
        passed: dict[str, _Tenant[T]] = {}
        while self._tenants and any(not pack or entry.tokens <= left for entry in self._firsts()):
            if pack and self._enough(self._pack_tokens - left, len(pack)):
                break
            name, tenant = next(iter(self._tenants.items()))
            entry = tenant.first(self._quantum)
            if tenant.credit < entry.tokens:
                tenant.credit += self._quantum
            if tenant.credit < entry.tokens:
                self._tenants[name] = self._tenants.pop(name)
            elif pack and entry.tokens > left:
                passed[name] = self._tenants.pop(name)
            else:
                pack.append(entry.item)
                left -= entry.tokens
                self._take(name, tenant)
        self._tenants = passed | self._tenants
        return pack

    def clear(self) -> list[T]:
        """Take out everything."""
        entries = [entry for tenant in self._tenants.values() for run in tenant.runs.values() for entry in run.entries]
        self._tenants, self._count = {}, 0
        return [entry.item for entry in entries]

    def _firsts(self) -> Iterator[_Entry[T]]:
        return (tenant.first(self._quantum) for tenant in self._tenants.values())

    def _take(self, name: str, tenant: _Tenant[T]) -> None:
        tenant.take()
        self._count -= 1
        if not tenant.runs:
            del self._tenants[name]
        elif tenant.credit < tenant.first(self._quantum).tokens:
            self._tenants[name] = self._tenants.pop(name)
