"""Lines, for the ledger in memory: whose op is rung next where not all may be out at once. Pure; knows ids only.

A tenant may have at most as many ops out (rung or held) as there are free slots: alone it has half of the slots, n
tenants have an (n+1)th each, and whoever comes new finds one free (dynamic thresholds, Choudhury and Hahne 1998). Few
of them may be unclaimed: bells in a queue cannot be overtaken.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from openrl.domain.ids import OpId, TenantId
from openrl.ledger.port import BELLS_AT_LEAST, SLOTS_FOR_A_BELL

Key = TypeVar("Key")
Value = TypeVar("Value")

PACE_KEPT: Final = 64  #: rings after which half of a pace is forgotten


def bells_at_once(slots: int) -> int:
    """How many of a tenant's ops that are out may be unclaimed."""
    return max(BELLS_AT_LEAST, slots // SLOTS_FOR_A_BELL)


@dataclass(slots=True)
class Pace:
    """How fast the ops of a tenant leave the line, of late."""

    since: float
    rung: float = 0.0

    def note(self, now: float) -> None:
        if self.rung >= PACE_KEPT:
            self.since, self.rung = now - (now - self.since) / 2, self.rung / 2
        self.rung += 1


@dataclass(slots=True)
class _Standing:
    """The ops of a tenant that stand, by owner; the first owner is next. All are kept in the order of the dict."""

    pace: Pace
    owners: dict[str, dict[OpId, None]] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    standing: dict[TenantId, _Standing] = field(default_factory=dict)  #: the first tenant is next
    out: dict[TenantId, set[OpId]] = field(default_factory=dict)  #: rung or held
    bells: dict[TenantId, set[OpId]] = field(default_factory=dict)  #: of these, not claimed since they came out

    def enter(self, op: OpId, tenant: TenantId, owner: str, slots: int, now: float) -> bool:
        """Whether the op may be rung; else it stands from now on. A tenant with ops that stand is not under its
        threshold."""
        if tenant not in self.standing and self._may_ring(tenant, slots):
            self._go_out(op, tenant)
            return True
        standing = self.standing.setdefault(tenant, _Standing(Pace(now)))
        standing.owners.setdefault(owner, {})[op] = None
        return False

    def answered(self, op: OpId, tenant: TenantId) -> None:
        """The op was claimed. `move` afterwards."""
        self.bells.get(tenant, set()).discard(op)

    def leave(self, op: OpId, tenant: TenantId, owner: str) -> None:
        """The op has settled, whether it was out or stood. `move` afterwards."""
        self.answered(op, tenant)
        if op in self.out.get(tenant, ()):
            self.out[tenant].discard(op)
            if not self.out[tenant]:
                del self.out[tenant]
        else:
            self._step_out(op, tenant, owner)

    def move(self, slots: int, now: float) -> Iterator[OpId]:
        """The ops that may be rung, in turn between tenants under their threshold, then between owners."""
        while (tenant := next((t for t in self.standing if self._may_ring(t, slots)), None)) is not None:
            standing = self.standing[tenant]
            owner, ops = next(iter(standing.owners.items()))
            op = next(iter(ops))
            _to_the_end(self.standing, tenant)
            _to_the_end(standing.owners, owner)
            self._step_out(op, tenant, owner)
            standing.pace.note(now)
            self._go_out(op, tenant)
            yield op

    def place(self, op: OpId, tenant: TenantId, owner: str, unsettled: int) -> tuple[int, Pace] | None:
        """How many of the tenant's ops may be rung before it, at most, and at which pace; None where it does not
        stand. `unsettled` are all of the tenant."""
        standing = self.standing.get(tenant)
        if standing is None or op not in standing.owners.get(owner, ()):
            return None
        before = list(standing.owners[owner]).index(op)
        ahead = before * len(standing.owners) + list(standing.owners).index(owner)
        return min(ahead, unsettled - len(self.out.get(tenant, ())) - 1), standing.pace

    def waits(self) -> Iterator[tuple[TenantId, int, Pace]]:
        """The tenants with ops that stand, how many, and at which pace they leave."""
        for tenant, standing in self.standing.items():
            yield tenant, sum(map(len, standing.owners.values())), standing.pace

    def _may_ring(self, tenant: TenantId, slots: int) -> bool:
        free = slots - sum(map(len, self.out.values()))
        return len(self.out.get(tenant, ())) < free and len(self.bells.get(tenant, ())) < bells_at_once(slots)

    def _go_out(self, op: OpId, tenant: TenantId) -> None:
        self.out.setdefault(tenant, set()).add(op)
        self.bells.setdefault(tenant, set()).add(op)

    def _step_out(self, op: OpId, tenant: TenantId, owner: str) -> None:
        standing = self.standing[tenant]
        del standing.owners[owner][op]
        if not standing.owners[owner]:
            del standing.owners[owner]
        if not standing.owners:
            del self.standing[tenant]


def _to_the_end(order: dict[Key, Value], key: Key) -> None:
    order[key] = order.pop(key)
