"""Errors by who can put them right.

    OpenRLError
    ├── CallerError    asking again won't help
    ├── PassingError   time will help
    └── OperatorError  a human at the machine helps

A leaf takes the facts, passes them to `super().__init__` and builds its sentence in `__str__`, so that it survives
pickling. Catch by branch, at a border (desk, route, supervisor).
"""


class OpenRLError(Exception):
    """The root of everything OpenRL raises on purpose."""


class CallerError(OpenRLError):
    """The request is wrong; asking again won't help."""

    servers_fault = False  #: True where asking again won't help although the caller did nothing wrong


class PassingError(OpenRLError):
    """Not now; time will help."""


class OperatorError(OpenRLError):
    """The installation is wrong; whoever runs it can help."""


class NotFoundError(CallerError):
    """A thing that is not there, or is another tenant's, which must look the same."""


# ------------------------------------------------------------------------------------------------ caller
class FieldInvalid(CallerError):
    """A field of the request breaks a rule. Facts: the field's path, and what is wrong with it and how to mend it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class BodyInvalid(CallerError):
    """The body could not be read at all."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)

    def __str__(self) -> str:
        return f"request body: {self.args[0]}"


class BodyTooLarge(CallerError):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)

    def __str__(self) -> str:
        return f"request body: larger than {self.args[0] / 1e6:.0f} MB; send fewer or shorter datums per request"


class KeyRejected(CallerError):
    def __init__(self, problem: str) -> None:
        super().__init__(problem)

    def __str__(self) -> str:
        return f"X-API-Key: {self.args[0]}"


class ModelUnknown(CallerError):
    """The base model is not served. Facts: the name, and what is served."""

    def __init__(self, name: str, served: tuple[str, ...]) -> None:
        super().__init__(name, served)

    def __str__(self) -> str:
        name, served = self.args
        known = ", ".join(served) or "none: no worker is up"
        return f"base_model: {name!r} is not served here; served models: {known}"


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
    def __init__(self, run: str) -> None:
        super().__init__(run)

    def __str__(self) -> str:
        return f"model_id: no training run {self.args[0]!r}"


class SamplerNotFound(NotFoundError):
    def __init__(self, sampler: str) -> None:
        super().__init__(sampler)

    def __str__(self) -> str:
        return f"sampling_session_id: no sampling session {self.args[0]!r}"


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
    def __init__(self, path: str) -> None:
        super().__init__(path)

    def __str__(self) -> str:
        return f"path: no checkpoint {self.args[0]!r}"


class CheckpointExists(CallerError):
    def __init__(self, path: str) -> None:
        super().__init__(path)

    def __str__(self) -> str:
        return f"path: {self.args[0]} exists already; choose another name or pass overwrite=True"


class TurnPassed(CallerError):
    """The run went on without this turn, so it can no longer be executed in order."""

    def __init__(self, run: str, turn: int) -> None:
        super().__init__(run, turn)

    def __str__(self) -> str:
        return f"seq_id: {self.args[0]} has already gone past {self.args[1]}; it came too late to be run in order"


class GradientNotFinite(CallerError):
    """NaN or infinity in a gradient; the run's weights stayed as they were."""

    def __init__(self, where: str) -> None:
        super().__init__(where)

    def __str__(self) -> str:
        return (
            f"{self.args[0]}: the gradient is not finite; nothing was applied. Check advantages, logprobs and weights"
        )


class AdapterUnsupported(CallerError):
    """Adapter files that cannot be computed with here. Facts: the file, key or setting, and what is wrong with it."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)

    def __str__(self) -> str:
        return f"adapter {self.args[0]}: {self.args[1]}"


class WeightsUnsupported(CallerError):
    """Files of weights that do not fit the base model. Facts: the file or weight, and what is wrong with it."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)

    def __str__(self) -> str:
        return f"weights {self.args[0]}: {self.args[1]}"


class UpdateNotFinite(CallerError):
    """NaN or infinity in an optimizer's update; the run's weights and moments stayed as they were."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "optim_step: the update is not finite; nothing was applied. Check adam_params.learning_rate and eps"


class RewardUnknown(CallerError):
    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)

    def __str__(self) -> str:
        return f"reward: no reward function {self.args[0]!r}; known: {', '.join(self.args[1])}"


class RunLost(CallerError):
    """The worker that held the run's weights is gone."""

    servers_fault = True

    def __init__(self, run: str) -> None:
        super().__init__(run)

    def __str__(self) -> str:
        return (
            f"model_id: the worker that held {self.args[0]} was lost together with its weights; "
            "go on from its last saved checkpoint with create_training_client_from_state_with_optimizer"
        )


class WornOut(CallerError):
    """The op was claimed again and again, and each time its worker was lost or gave it back."""

    servers_fault = True

    def __init__(self, attempts: int) -> None:
        super().__init__(attempts)

    def __str__(self) -> str:
        return (
            f"given up after {self.args[0]} attempts: each time its worker stopped or gave it back; the logs of the "
            "workers say why"
        )


class MemberUnknown(NotFoundError):
    """An op is to wait for one that is not there (any more), or is another tenant's."""

    def __init__(self, op: str) -> None:
        super().__init__(op)

    def __str__(self) -> str:
        return f"after: no request {self.args[0]!r}; name requests that were sent before and have not expired"


class MemberFailed(CallerError):
    """An op that this one waited for failed. Facts: the op, and what it failed with."""

    def __init__(self, op: str, why: str) -> None:
        super().__init__(op, why)

    def __str__(self) -> str:
        return f"request {self.args[0]}, which this one waited for, failed: {self.args[1]}"


class BatchNotFound(NotFoundError):
    def __init__(self, batch: str) -> None:
        super().__init__(batch)

    def __str__(self) -> str:
        return f"batch_id: no batch of rollouts {self.args[0]!r}; batches expire some time after they ended"


class OpCancelled(CallerError):
    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the request was cancelled"


# ------------------------------------------------------------------------------------------------ passing
class TooManyWaiting(PassingError):
    """The tenant's bound on waiting operations is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)

    def __str__(self) -> str:
        return f"{self.args[0]} requests are waiting already; retry when some have finished"


class NoRoomForBatch(PassingError):
    """A batch would pass the tenant's bound. Facts: the bound, how many operations wait, and how many would come."""

    def __init__(self, limit: int, waiting: int, wanted: int) -> None:
        super().__init__(limit, waiting, wanted)

    def __str__(self) -> str:
        limit, waiting, wanted = self.args
        return (
            f"{waiting} requests are waiting already and this would add {wanted}, but at most {limit} may wait; "
            "retry when some have finished, or send fewer at once"
        )


class WeightsNotArrived(PassingError):
    def __init__(self, key: str) -> None:
        super().__init__(key)

    def __str__(self) -> str:
        return f"weights {self.args[0]} are not in the depot yet"


class EngineBusy(PassingError):
    def __init__(self, why: str) -> None:
        super().__init__(why)

    def __str__(self) -> str:
        return f"the engine cannot take this now: {self.args[0]}"


class NoWorker(PassingError):
    """No worker has announced the model yet; it may be starting."""

    def __init__(self, model: str) -> None:
        super().__init__(model)

    def __str__(self) -> str:
        return f"no worker serves {self.args[0]} yet; it may still be starting"


class Draining(PassingError):
    """The worker is going away and hands the op back; the attempt does not count."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the worker is shutting down"


class TurnUnsettled(PassingError):
    """A snapshot came before the end of its last turn was written down. Facts: the run and the turn."""

    def __init__(self, run: str, turn: int) -> None:
        super().__init__(run, turn)

    def __str__(self) -> str:
        return f"turn {self.args[1]} of {self.args[0]} has not ended yet"


class ClaimLost(PassingError):
    """Somebody else holds the op now; what this worker computed does not count."""

    def __init__(self, op: str) -> None:
        super().__init__(op)

    def __str__(self) -> str:
        return f"op {self.args[0]} is held by another worker now"


class LeaseLost(PassingError):
    """Somebody else holds the run now; what this worker has of it does not count."""

    def __init__(self, run: str) -> None:
        super().__init__(run)

    def __str__(self) -> str:
        return f"run {self.args[0]} is leased by another worker now"


class LedgerUnreachable(PassingError):
    """Redis is restarting or cut off. Whether the call was carried out is unknown; all of them may be repeated."""

    def __init__(self, why: str) -> None:
        super().__init__(why)

    def __str__(self) -> str:
        return f"the ledger does not answer ({self.args[0]}); retry in a moment"


# ------------------------------------------------------------------------------------------------ operator
class SettingInvalid(OperatorError):
    """A setting is unknown or wrong. Facts: its name, and what to do."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


class BaseModelMissing(OperatorError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)

    def __str__(self) -> str:
        return f"base model {self.args[0]!r} cannot be loaded: {self.args[1]}"


class ModelUnsupported(OperatorError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)

    def __str__(self) -> str:
        return f"base model {self.args[0]!r} is not supported: {self.args[1]}"


class CatalogUnreachable(OperatorError):
    """The database does not answer, or not as ours. Facts: its URL without the password, and what it said."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)

    def __str__(self) -> str:
        return f"catalog {self.args[0]} cannot be used: {self.args[1]}"


class DepotUnreachable(OperatorError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)

    def __str__(self) -> str:
        return f"depot {self.args[0]} cannot be used: {self.args[1]}"


class DepotDamaged(DepotUnreachable):
    """It answers with other bytes than were written."""


class BytesLost(OperatorError):
    """A row refers to bytes that are no longer in the depot."""

    def __init__(self, key: str) -> None:
        super().__init__(key)

    def __str__(self) -> str:
        return (
            f"depot: {self.args[0]} is gone although a row refers to it; "
            "was the depot emptied, or is OPENRL_DEPOT_URL not the same everywhere?"
        )
