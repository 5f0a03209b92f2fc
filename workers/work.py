"""What a station can do with an op of one kind: the step between the desk, which knows no engine, and an engine, which
knows no op."""

from typing import Protocol

from openrl.domain.ids import OpId
from openrl.domain.outcome import Result
from openrl.ledger.port import Held


class Work(Protocol):
    def __call__(self, held: Held) -> Result:
        """Carry the op out. Raises CallerError for a request that cannot be, PassingError to be asked again later."""
        ...

    def abort(self, op_id: OpId) -> None:
        """The op is no longer ours (cancelled, or held by another): stop computing if that is easy."""
        ...

    def drain(self) -> None:
        """The process is going away: make unfinished ops end with Draining, soon."""
        ...
