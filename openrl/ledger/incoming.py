"""How ops come into the ledger in Redis: their bodies to the shelf first, where these are big, then their rows."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final

from openrl.domain.errors import MemberUnknown, TooManyWaiting, TurnPassed, WeightsRemoved
from openrl.domain.ids import OpId
from openrl.domain.op import Bell, Op, SampleOp, TrainOp
from openrl.ledger import codec
from openrl.ledger.follow_up import FollowUp
from openrl.ledger.rows import append_fields
from openrl.ledger.scripts import Scripts
from openrl.ledger.shelving import Shelving

AT_ONCE: Final = 50  #: ops in one script, where there are many: others wait until all of them are in


class Incoming:
    def __init__(self, scripts: Scripts, shelving: Shelving, follow_up: FollowUp, max_waiting: int) -> None:
        self._scripts, self._shelving, self._follow_up = scripts, shelving, follow_up
        self._max_waiting = max_waiting

    def append(self, op: Op, bell: Bell) -> OpId:
        (op_id,) = self._append([(op, bell)])
        return op_id

    def append_all(self, ops: Iterable[tuple[Op, Bell]]) -> None:
        coming = iter(ops)
        while some := list(islice(coming, AT_ONCE)):
            self._append(some)

    def _append(self, some: Sequence[tuple[Op, Bell]]) -> list[OpId]:
        bodies = [self._shelved(op) for op, _ in some]
        rows = [append_fields(op, bell, body) for (op, bell), body in zip(some, bodies, strict=True)]
        fields = chain.from_iterable((len(row), *row) for row in rows)
        answers, bells, spent = self._scripts.call("append", self._max_waiting, *fields)
        self._follow_up.do(bells, spent)
        each = zip(some, bodies, answers, strict=True)
        return [self._appended(op, body is None, answer) for (op, _), body, answer in each]

    def _shelved(self, op: Op) -> bytes | None:
        """The body for the op's row, or None where it is on the shelf."""
        body = codec.encode(op.action)
        return None if self._shelving.put_body(op.id, body) else body

    def _appended(self, op: Op, by_reference: bool, answer: Sequence[Any]) -> OpId:
        word, first, status = answer
        first_id = OpId(first.decode())
        if by_reference and word != b"new" and not (first_id == op.id and status in (b"waiting", b"held")):
            self._shelving.discard_body(op.id)
        if word == b"passed" and isinstance(op, TrainOp):
            raise TurnPassed(op.run, op.turn)
        if word == b"retired" and isinstance(op, SampleOp):
            raise WeightsRemoved(op.sampler)
        if word == b"full":
            raise TooManyWaiting(self._max_waiting)
        if word == b"stranger":
            raise MemberUnknown(first_id)
        return first_id
