"""Joins, for the ledger in memory: which ops wait for which. Pure; knows ids only."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.op import Op
from openrl.domain.rollout import MOST_MEMBERS


def members_of(op: Op) -> tuple[OpId, ...]:
    """The ops that it waits for, each once. Raises FieldInvalid where they are too many."""
    members = tuple(dict.fromkeys(op.after.ops)) if op.after is not None else ()
    if len(members) > MOST_MEMBERS:
        raise FieldInvalid("after", f"names {len(members)} requests; one may wait for at most {MOST_MEMBERS}")
    return members


@dataclass(slots=True)
class Joins:
    pending: dict[OpId, set[OpId]] = field(default_factory=dict)  #: members that have not settled, by op
    joined: dict[OpId, dict[OpId, None]] = field(default_factory=dict)  #: unsettled ops by member, as they came

    def enter(self, op: OpId, members: Iterable[OpId], unsettled: Iterable[OpId]) -> None:
        for member in members:
            self.joined.setdefault(member, {})[op] = None
        if pending := set(unsettled):
            self.pending[op] = pending

    def tell(self, member: OpId) -> list[OpId]:
        """The member has settled; answers the ops that waited for it, as they came."""
        waited = [op for op in self.joined.get(member, ()) if member in self.pending.get(op, ())]
        for op in waited:
            self.pending[op].discard(member)
        return waited

    def come_free(self, op: OpId) -> bool:
        """Whether it waits for none any more, from now on."""
        if self.pending.get(op, True):
            return False
        del self.pending[op]
        return True

    def leave(self, op: OpId, members: Iterable[OpId]) -> None:
        """The op has settled."""
        self.pending.pop(op, None)
        for member in members:
            self.joined[member].pop(op, None)
            if not self.joined[member]:
                del self.joined[member]
