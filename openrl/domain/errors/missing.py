"""What is not there, or not any more. Another tenant's looks the same."""

from openrl.domain.errors.branches import NotFoundError


class KeyNotFound(NotFoundError):
    def __init__(self, key_id: int) -> None:
        super().__init__(key_id)

    def __str__(self) -> str:
        return f"id: no API key {self.args[0]}"


class SessionNotFound(NotFoundError):
    def __init__(self, session: str) -> None:
        super().__init__(session)

    def __str__(self) -> str:
        return f"session_id: no session {self.args[0]!r}"


class RunNotFound(NotFoundError):
    """Facts, here and where a field is one below: what was asked for, and the field that asked."""

    def __init__(self, run: str, field: str = "model_id") -> None:
        super().__init__(run, field)

    def __str__(self) -> str:
        return f"{self.args[1]}: no training run {self.args[0]!r}"


class SamplerNotFound(NotFoundError):
    def __init__(self, sampler: str, field: str = "sampling_session_id") -> None:
        super().__init__(sampler, field)

    def __str__(self) -> str:
        return f"{self.args[1]}: no sampling session {self.args[0]!r}"


class WeightsRemoved(NotFoundError):
    """The policy version of a sampler was let go of. Fact: the sampler."""

    def __init__(self, sampler: str) -> None:
        super().__init__(sampler)

    def __str__(self) -> str:
        return (
            f"sampling_session_id: the weights of {self.args[0]} were removed. Those of a checkpoint are kept until it "
            "is deleted, written over or past its time; without a name, while their session goes on and they are among "
            "the newest of their run or in use. Save what must stay with save_weights_for_sampler(name) and make a "
            "sampling client from the path it answers"
        )


class OpNotFound(NotFoundError):
    def __init__(self, op: str) -> None:
        super().__init__(op)

    def __str__(self) -> str:
        return f"request_id: no request {self.args[0]!r}"


class CheckpointMissing(NotFoundError):
    def __init__(self, path: str, field: str = "path") -> None:
        super().__init__(path, field)

    def __str__(self) -> str:
        return f"{self.args[1]}: no checkpoint {self.args[0]!r}"


class MemberUnknown(NotFoundError):
    """An op is to wait for one that is not there (any more), or is another tenant's."""

    def __init__(self, op: str) -> None:
        super().__init__(op)

    def __str__(self) -> str:
        return f"after: no request {self.args[0]!r}; name requests that were sent before and have not expired"


class BatchNotFound(NotFoundError):
    def __init__(self, batch: str) -> None:
        super().__init__(batch)

    def __str__(self) -> str:
        return f"batch_id: no batch of rollouts {self.args[0]!r}; batches expire some time after they ended"
