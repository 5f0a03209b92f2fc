"""How operations end: results by action, or a failure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from openrl.domain.errors import CallerError
from openrl.domain.ids import OpId, RunId, SamplerId, TenantId
from openrl.domain.judge import Judged
from openrl.domain.op import Status
from openrl.domain.rollout import Graded, RolledOut
from openrl.domain.sampling import SampleResult
from openrl.domain.tensor import Tensor


class Category(StrEnum):
    """Who can put a failure right; the SDK's RequestErrorCategory."""

    USER = "user"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure as data. `error` is the class name of the domain error."""

    error: str
    message: str
    category: Category


def failure_of(error: Exception) -> Failure:
    """A caller's error speaks for itself; anything else is ours, and its class helps whoever reads the logs."""
    name = type(error).__name__
    if isinstance(error, CallerError):
        category = Category.SERVER if error.servers_fault else Category.USER
        return Failure(error=name, message=str(error), category=category)
    return Failure(error=name, message=f"internal error ({name}): {error}", category=Category.SERVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCreated:
    kind: ClassVar[str] = "run_created"
    run: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLoaded:
    kind: ClassVar[str] = "weights_loaded"
    run: RunId
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    kind: ClassVar[str] = "batch_result"
    logprobs: tuple[Tensor, ...]  #: float32, one per datum, shaped like its target_tokens
    metrics: dict[str, float]  #: keys `name:reduction`


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    kind: ClassVar[str] = "step_result"
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSaved:
    kind: ClassVar[str] = "weights_saved"
    path: str | None
    sampler: SamplerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    kind: ClassVar[str] = "sampled"
    result: SampleResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    kind: ClassVar[str] = "scores"
    values: tuple[float, ...]
    info: tuple[dict[str, str], ...] = field(default=())  #: for people; one for each value, or none at all
    parts: tuple[dict[str, float], ...] = field(default=())  #: what a value is made of; likewise


Result = (
    RunCreated
    | WeightsLoaded
    | BatchResult
    | StepResult
    | WeightsSaved
    | Sampled
    | RolledOut
    | Judged
    | Scores
    | Graded
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What the ledger answers when asked about an op."""

    id: OpId
    tenant: TenantId
    kind: str  #: of the action
    status: Status
    attempts: int
    result: Result | None = None  #: when done
    failure: Failure | None = None  #: when failed
    queue: str = ""  #: until it is settled, where it was rung
    label: str = ""  #: what its client calls it
