"""What a station can do with an op of one kind: the step between the desk, which knows no engine, and an engine, which
knows no op."""

from typing import Protocol, TypeVar

from openrl.domain.ids import OpId
from openrl.domain.op import Op
from openrl.domain.outcome import Result

AnyOp_contra = TypeVar("AnyOp_contra", bound=Op, contravariant=True)


class Work(Protocol[AnyOp_contra]):
    def __call__(self, op: AnyOp_contra) -> Result:
        """Carry the op out. Raises CallerError for a request that cannot be, PassingError to be asked again later."""
        ...

    def abort(self, op_id: OpId) -> None:
        """The op is no longer ours (cancelled, or held by another): stop computing if that is easy."""
        ...

    def drain(self) -> None:
        """The process is going away: make unfinished ops end with Draining, soon."""
        ...
