"""Whose turn it is among what waits. Pure: knows who owns an item and what was charged for it, but no sizes, device,
clock or lock.

Deficit round robin between tenants and then between the owners of a tenant (its samplers, say): in each round everybody
has a quantum of credit; whoever has credit may take one item more, however large, and what its credit did not cover is
paid with its next quanta. So over time all get the same, and who comes with nothing served yet goes first.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

SAVED = 16  #: quanta, at most, of who is passed over
REMEMBERED = 256  #: of those who have nothing waiting: what they still owe, or that they are not new


class _Waiting(Protocol):
    name: str
    credit: int

    def empty(self) -> bool:
        """Whether nothing waits."""


W = TypeVar("W", bound=_Waiting)


class _Ring(Generic[W]):
    """Those who take turns, the next one in front."""

    def __init__(self, quantum: int) -> None:
        self._quantum = quantum
        self._fresh: dict[str, W] = {}  #: before all others: who was put aside, and who came new
        self._known: dict[str, W] = {}
        self._away: dict[str, W] = {}  #: who has nothing waiting
        self._aside: dict[str, W] = {}  #: in this round

    def __iter__(self) -> Iterator[W]:
        return chain(self._fresh.values(), self._known.values())

    def empty(self) -> bool:
        """Whether nothing waits, nor was put aside."""
        return all(member.empty() for member in chain(self, self._aside.values()))

    def member(self, name: str, make: Callable[[str, int], W]) -> W:
        """The one of this name; a new one is made with its name and credit."""
        if name in self._away:
            self._known[name] = self._away.pop(name)
        found = self._fresh.get(name) or self._known.get(name) or self._aside.get(name)
        if found is None:
            found = self._fresh[name] = make(name, self._quantum)
        return found

    def first(self) -> W | None:
        """Whose turn it is; None where nobody waits."""
        while True:
            found, least, emptied = self._look()
            for member in emptied:
                self._leave(member)
            if found is not None or least is None:
                return found
            self._replenish(least // self._quantum + 1)

    def charge(self, member: W, tokens: int) -> None:
        """Who has no credit left goes behind the others, and who has nothing that waits leaves."""
        member.credit -= tokens
        if member.empty():
            self._leave(member)
        elif member.credit <= 0:
            self._out(member)
            self._known[member.name] = member

    def put_aside(self, member: W) -> None:
        self._out(member)
        self._aside[member.name] = member

    def take_back(self) -> None:
        """Who was put aside is in front of the others again."""
        if self._aside:
            self._fresh = self._aside | self._fresh
            self._aside = {}

    def _look(self) -> tuple[W | None, int | None, list[W]]:
        """Whose turn it is; else the least that anybody who waits owes; and who was met and has nothing any more."""
        least, emptied = None, []
        for member in self:
            if member.empty():
                emptied.append(member)
            elif member.credit > 0:
                return member, None, emptied
            else:
                least = -member.credit if least is None else min(least, -member.credit)
        return None, least, emptied

    def _replenish(self, rounds: int) -> None:
        """So many quanta for everybody; who is away and owes nothing is forgotten."""
        self._away = {name: member for name, member in self._away.items() if member.credit < 0}
        for member in self:
            member.credit += rounds * self._quantum
        for members, most in ((self._away, 1), (self._aside, SAVED)):
            for member in members.values():
                member.credit = min(most * self._quantum, member.credit + rounds * self._quantum)

    def _leave(self, member: W) -> None:
        self._out(member)
        self._away[member.name] = member
        if len(self._away) > REMEMBERED:
            del self._away[next(iter(self._away))]

    def _out(self, member: W) -> None:
        del (self._fresh if member.name in self._fresh else self._known)[member.name]


@dataclass(slots=True)
class _Owner(Generic[T]):
    """A run, a sampler: what of it waits, by age."""

    name: str
    credit: int
    over: Callable[[T], bool]
    items: deque[T] = field(default_factory=deque)

    def empty(self) -> bool:
        while self.items and self.over(self.items[0]):
            self.items.popleft()
        return not self.items


@dataclass(slots=True)
class _Tenant(Generic[T]):
    name: str
    credit: int
    owners: _Ring[_Owner[T]]

    def empty(self) -> bool:
        return self.owners.empty()


class Rotation(Generic[T]):
    """`quantum` is what may be charged before the next one's turn. Items that are `over` are skipped: nobody has to
    take them out."""

    def __init__(self, quantum: int, over: Callable[[T], bool] = lambda item: False) -> None:
        self._quantum, self._over = quantum, over
        self._tenants: _Ring[_Tenant[T]] = _Ring(quantum)
        self._short: dict[str, _Ring[_Owner[T]]] = {}  #: by tenant, an owner of whom was put aside

    def add(self, item: T, *, tenant: str, owner: str) -> None:
        """Behind everything that waits of its owner."""
        owners = self._tenants.member(tenant, lambda name, credit: _Tenant(name, credit, _Ring(self._quantum))).owners
        owners.member(owner, lambda name, credit: _Owner(name, credit, self._over)).items.append(item)

    def first(self) -> T | None:
        """Whose turn it is, until it is charged or passed over; None where nothing is left in this round."""
        at = self._at()
        return None if at is None else at[1].items[0]

    def charge(self, tokens: int, *, gone: bool) -> None:
        """The first has got something that costs so much, and leaves where it is `gone`."""
        tenant, owner = self._somebody()
        if gone:
            owner.items.popleft()
        tenant.owners.charge(owner, tokens)
        self._tenants.charge(tenant, tokens)

    def pass_over(self) -> None:
        """The first cannot go now: nor can anything else of its tenant, until the next round."""
        self._tenants.put_aside(self._somebody()[0])

    def pass_over_owner(self) -> None:
        """The first cannot go now: nor can anything else of its owner, until the next round."""
        tenant, owner = self._somebody()
        tenant.owners.put_aside(owner)
        self._short[tenant.name] = tenant.owners

    def new_round(self) -> None:
        """Those passed over come to their turns again, before the others."""
        self._tenants.take_back()
        for owners in self._short.values():
            owners.take_back()
        self._short = {}

    def _somebody(self) -> tuple[_Tenant[T], _Owner[T]]:
        at = self._at()
        assert at is not None, "there is a first one"
        return at

    def _at(self) -> tuple[_Tenant[T], _Owner[T]] | None:
        while (tenant := self._tenants.first()) is not None:
            owner = tenant.owners.first()
            if owner is not None:
                return tenant, owner
            self._tenants.put_aside(tenant)
        return None
