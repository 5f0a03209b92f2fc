"""Batches of ops: what the ledger tells of one, and how the ledger in memory keeps it."""

from dataclasses import dataclass, field, replace
from typing import Final

from openrl.domain.errors import BatchTooLarge, NoRoomForBatch
from openrl.domain.ids import BatchId, OpId, TenantId
from openrl.domain.outcome import Failure
from openrl.domain.rollout import Sums

ERROR_KEPT: Final = "failed:"  #: begins the names of counts of groups that ended without a result


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Groups of ops, each ended by one of them."""

    id: BatchId
    tenant: TenantId
    groups: int
    ops: int  #: that all groups have together
    digest: str  #: of what was asked for, to tell a resend from another request
    note: bytes = b""  #: whatever its maker wants to find again
    created: float = 0.0  #: on the ledger's clock
    appended: int = 0  #: ops
    unsettled: int = 0  #: of those
    groups_settled: int = 0
    cancelled: bool = False
    sums: dict[str, float] = field(default_factory=dict)  #: what its groups' results added up to
    failed: dict[str, int] = field(default_factory=dict)  #: groups that ended without a result, by error

    @property
    def whole(self) -> bool:
        """Whether no op of it is to come."""
        return self.cancelled or self.appended >= self.ops

    @property
    def over(self) -> bool:
        return self.whole and self.unsettled == 0


@dataclass(slots=True)
class Kept:
    """One batch in memory."""

    batch: Batch
    last: float
    reserved: int = 0
    order: list[OpId] = field(default_factory=list)
    ops: list[OpId] = field(default_factory=list)  #: as they came, without those that were called off
    called_off: Failure | None = None  #: what becomes of its ops once it is closed

    def note_appended(self, op: OpId, now: float) -> None:
        self.ops.append(op)
        self.batch = replace(self.batch, appended=self.batch.appended + 1, unsettled=self.batch.unsettled + 1)
        self.last = now

    def note_settled(self, now: float) -> None:
        self.batch = replace(self.batch, unsettled=self.batch.unsettled - 1)
        self.last = now

    def end_group(self, op: OpId, error: str | None, sums: Sums | None) -> None:
        self.order.append(op)
        batch = replace(self.batch, groups_settled=self.batch.groups_settled + 1)
        if error is not None:
            batch = replace(batch, failed={**batch.failed, error: batch.failed.get(error, 0) + 1})
        self.batch = batch if sums is None else replace(batch, sums=_added(batch.sums, sums))

    def close(self, called_off: Failure) -> None:
        self.batch = replace(self.batch, cancelled=True)
        self.called_off = self.called_off or called_off

    def take_place(self) -> bool:
        if self.reserved <= 0:
            return False
        self.reserved -= 1
        return True

    def missing(self) -> int:
        """Ops that may still come and have no place."""
        return 0 if self.batch.cancelled else self.batch.ops - self.batch.appended - self.reserved

    def ends(self, keep_seconds: float) -> float | None:
        """When it expires; None where an op of it is under way."""
        return None if self.batch.unsettled > 0 else self.last + keep_seconds


def no_room(batch: Batch, most: int, waiting: int) -> BatchTooLarge | NoRoomForBatch:
    """Why a tenant with so many waiting, of which there may be `most`, cannot have the batch now, or ever."""
    if batch.ops > most:
        return BatchTooLarge(most, batch.ops, batch.groups)
    return NoRoomForBatch(most, waiting, batch.ops)


def _added(before: dict[str, float], sums: Sums) -> dict[str, float]:
    after = dict(before)
    for name, amount in sums.add.items():
        after[name] = after.get(name, 0.0) + amount
    for bound, better in ((sums.least, min), (sums.most, max)):
        for name, value in bound.items():
            after[name] = better(after.get(name, value), value)
    return after
