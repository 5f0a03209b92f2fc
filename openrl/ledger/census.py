"""What stands in the queues and whose it is, and what one op has been through. Pure; the ledgers fill it in."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from openrl.domain.ids import OpId, TenantId

PACE_BASIS: Final = 8  #: rings that tell a pace
MEMBERS_TOLD: Final = 100  #: of an op's members
PAGE = 100  #: ops, runs or owners looked at in one go


def waits_seconds(ahead: int, elapsed: float, rung: float) -> float | None:
    """Until an op with so many ahead of it is rung, where so many were rung in the time elapsed."""
    return (ahead + 1) * elapsed / rung if rung >= PACE_BASIS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one tenant has in a queue."""

    tenant: TenantId
    waiting: int  #: ops that nobody holds; those behind them in their runs too, those that wait for other ops not
    held: int
    oldest_seconds: float | None = field(compare=False)  #: since the oldest that waits was appended
    seconds: float | None = field(compare=False)  #: until the last of those in line is rung; None without a basis


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    name: str  #: a line, or a queue of training
    slots: int  #: that live workers bring to a line
    shares: tuple[Share, ...]  #: by tenant

    @property
    def waiting(self) -> int:
        return sum(share.waiting for share in self.shares)

    @property
    def held(self) -> int:
        return sum(share.held for share in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What an op has been through; times are the ledger's."""

    now: float
    appended: float
    rung: float | None  #: when it last became ready; None for one that was never rung
    rung_again: int | None  #: how often since then
    holder: str  #: the worker that has it, or had it as it settled; empty for none
    claimed: float | None  #: when it was last claimed
    settled: float | None
    line: str  #: that it goes through; empty for none, or once it has settled
    queue: str  #: where its bell rings, or rang
    after: tuple[tuple[OpId, str], ...]  #: members and their statuses, empty for one that is forgotten
    members: int  #: of those, how many there are; the first MEMBERS_TOLD are told


@dataclass(slots=True)
class _Count:
    waiting: int = 0
    held: int = 0
    oldest: float | None = None
    standing: int = 0
    pace: tuple[float, float] = (0.0, 0.0)  #: seconds, and rings in them


@dataclass(slots=True)
class Census:
    """Counts as they are found."""

    now: float
    slots: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[TenantId, _Count]] = field(default_factory=dict)

    def of(self, queue: str, tenant: TenantId) -> _Count:
        return self.counts.setdefault(queue, {}).setdefault(tenant, _Count())

    def held(self, queue: str, tenant: TenantId) -> None:
        self.of(queue, tenant).held += 1

    def waits(self, queue: str, tenant: TenantId, oldest: float, ops: int = 1, *, standing: bool = False) -> None:
        count = self.of(queue, tenant)
        count.waiting += ops
        count.standing += ops if standing else 0
        count.oldest = oldest if count.oldest is None else min(count.oldest, oldest)

    def paced(self, queue: str, tenant: TenantId, seconds: float, rung: float) -> None:
        """At which pace those that stand leave the line."""
        self.of(queue, tenant).pace = (seconds, rung)

    def told(self) -> list[QueueLoad]:
        """By name; those with slots alone too."""
        names = sorted(self.counts.keys() | self.slots.keys())
        return [
            QueueLoad(
                name=name,
                slots=self.slots.get(name, 0),
                shares=tuple(self._shares(name)),
            )
            for name in names
        ]

    def _shares(self, queue: str) -> Iterator[Share]:
        for tenant, count in sorted(self.counts.get(queue, {}).items()):
            if count.waiting or count.held:
                yield self._share(tenant, count)

    def _share(self, tenant: TenantId, count: _Count) -> Share:
        return Share(
            tenant=tenant,
            waiting=count.waiting,
            held=count.held,
            oldest_seconds=None if count.oldest is None else self.now - count.oldest,
            seconds=waits_seconds(count.standing - 1, *count.pace) if count.standing else None,
        )


def take_census(page: Callable[..., Sequence[Any]]) -> list[QueueLoad]:
    """By pages that `census.lua` answers: others use the ledger in between, so what moves meanwhile may count twice or
    not at all."""
    now, found, _ = page("lines", 0, 0)
    census = Census(float(now))
    _read(census, found)
    parts: list[tuple[str, ...]] = [("ready",), ("held",), ("gaps",)]
    parts += [("standing", queue, tenant) for queue, counts in census.counts.items() for tenant in counts]
    for part, *of in parts:
        start, looked = 0, PAGE
        while looked == PAGE:
            _, found, looked = page(part, start, start + PAGE - 1, *of)
            _read(census, found)
            start += looked
    return census.told()


def _read(census: Census, found: Sequence[Sequence[Any]]) -> None:
    for what, name, *rest in found:
        queue, words = name.decode(), [word.decode() if isinstance(word, bytes) else word for word in rest]
        match what:
            case b"slots":
                census.slots[queue] = census.slots.get(queue, 0) + int(words[0])
            case b"pace":
                census.paced(queue, TenantId(words[0]), float(words[1]), float(words[2]))
            case b"held":
                census.held(queue, TenantId(words[0]))
            case b"waits" | b"stands":
                census.waits(queue, TenantId(words[0]), float(words[2]), int(words[1]), standing=what == b"stands")


def read_life(answer: Sequence[Any]) -> Life | None:
    """What `life.lua` answers."""
    if not answer:
        return None
    now, appended, rung, rings, claimed, holder, line, queue, settled, count, *members = answer
    return Life(
        now=float(now),
        appended=float(appended),
        rung=None if rung is None else float(rung),
        rung_again=None if rings is None else int(rings),
        holder=(holder or b"").decode(),
        claimed=None if claimed is None else float(claimed),
        settled=None if settled is None else float(settled),
        line=(line or b"").decode(),
        queue=queue.decode(),
        after=tuple((OpId(members[at].decode()), members[at + 1].decode()) for at in range(0, len(members), 2)),
        members=count,
    )
