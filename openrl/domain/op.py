"""Operations: the units of work that the ledger records and workers carry out.

An operation has a shape (who it belongs to, and its place in their order) and an action (what to compute). Only
training has turns.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from openrl.domain.datum import Datum, Loss
from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, SamplerId, TenantId, WorkerId
from openrl.domain.rollout import After, RollOut, ScoreGroup
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import Tensor


class Status(StrEnum):
    WAITING = "waiting"  #: in the ledger; nobody holds it
    HELD = "held"  #: exactly one worker holds it
    DONE = "done"
    FAILED = "failed"  #: will not be tried again


SETTLED = frozenset({Status.DONE, Status.FAILED})


# ------------------------------------------------------------------------------------------------ training actions
@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRun:
    kind: ClassVar[str] = "create_run"
    base_model: str  #: canonical
    lora: LoraSpec | None  #: None: all weights are trained


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWeights:
    """Put a checkpoint's weights into the run; as turn 0 it also creates the run."""

    kind: ClassVar[str] = "load_weights"
    base_model: str  #: canonical
    lora: LoraSpec | None  #: of the checkpoint; None: it holds all weights
    source: DepotKey
    path: str  #: the `tinker://` path asked for
    with_optimizer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBackward:
    kind: ClassVar[str] = "forward_backward"
    data: tuple[Datum, ...]
    loss: Loss
    loss_config: dict[str, float] = field(default_factory=dict)
    forward_only: bool = False  #: gradients stay untouched


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimStep:
    kind: ClassVar[str] = "optim_step"
    adam: AdamParams


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveWeights:
    """Write a named checkpoint (weights and optimizer) to `target` in the depot and enter it in the catalog."""

    kind: ClassVar[str] = "save_weights"
    target: DepotKey
    path: str
    overwrite: bool = False
    ttl_seconds: int | None = None
    user_metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePolicy:
    """Write sampler weights to `target`: named (`path` given) or for one sampler only (`sampler` given)."""

    kind: ClassVar[str] = "save_policy"
    target: DepotKey
    path: str | None = None
    sampler: SamplerId | None = None
    overwrite: bool = False
    ttl_seconds: int | None = None
    user_metadata: dict[str, str] = field(default_factory=dict)


TrainAction = CreateRun | LoadWeights | ForwardBackward | OptimStep | SaveWeights | SavePolicy


# ------------------------------------------------------------------------------------------------ other actions
@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    kind: ClassVar[str] = "sample"
    base_model: str  #: canonical
    policy: DepotKey | None  #: None samples the base model
    prompt: Tensor  #: int32 [P]
    num_samples: int
    params: SamplingParams
    prompt_logprobs: bool = False
    prompt_logprobs_last_n: int | None = None
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    target_prompt_logprobs: Tensor | None = None  #: int64 [P - 1, K], -1 = not asked
    prompt_alternatives: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTexts:
    """Score each text with a registered reward function. `contexts` is aligned with `texts`."""

    kind: ClassVar[str] = "score_texts"
    reward: str
    texts: tuple[str, ...]
    contexts: tuple[dict[str, str], ...]
    params: dict[str, str] = field(default_factory=dict)


def changes_run(action: "Action", *, failed: bool = False) -> bool:
    """Whether a run is another one after it, so that a recovery has to do it again. One that failed changed nothing,
    except that an optimizer step drops the gradient either way."""
    match action:
        case OptimStep():
            return True
        case ForwardBackward():
            return not action.forward_only and not failed
        case CreateRun() | LoadWeights():
            return not failed
        case _:
            return False


# ------------------------------------------------------------------------------------------------ shapes
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOp:
    id: OpId
    tenant: TenantId
    run: RunId
    turn: int  #: place in the run's own order; a client retry repeats it
    action: TrainAction
    after: After | None = None  #: ops that must have settled before

    @property
    def once(self) -> str:
        """Two appends with the same `once` are one operation."""
        return f"turn:{self.run}:{self.turn}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOp:
    id: OpId
    tenant: TenantId
    sampler: SamplerId  #: or the batch, of a rollout
    number: int  #: the client's own count; a client retry repeats it
    action: Sample | RollOut
    after: After | None = None
    batch: BatchId | None = None

    @property
    def owner(self) -> str:
        """Whose ops take turns in line, among those of a tenant."""
        return self.sampler

    @property
    def once(self) -> str:
        return f"sample:{self.sampler}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardOp:
    id: OpId
    tenant: TenantId
    action: ScoreTexts | ScoreGroup
    after: After | None = None
    batch: BatchId | None = None  #: a group of it settles with this op
    label: str = ""  #: what the client calls it

    @property
    def owner(self) -> str:
        return self.batch or ""

    @property
    def once(self) -> str:
        return f"op:{self.id}"


Op = TrainOp | SampleOp | RewardOp
Action = TrainAction | Sample | RollOut | ScoreTexts | ScoreGroup


def policy_of(op: Op) -> DepotKey | None:
    """The policy version that an op writes or samples; None for other ops and for samples of the base model."""
    match op.action:
        case Sample() | RollOut():
            return op.action.policy
        case SavePolicy():
            return op.action.target
    return None


def queue_of(worker: WorkerId) -> str:
    """The queue that only this worker listens to: for ops of the runs it leases."""
    return f"worker.{worker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bell:
    """What a Celery message carries: enough to route and to read it, never the work itself."""

    op: OpId
    queue: str
    task: str
    summary: str  #: for people, e.g. `run=3f9a:train:0 turn=4 tokens=812`
    trace: str = ""  #: W3C's traceparent of the request that brought the op in; empty while nobody traces
    line: str = ""  #: where the op stands until it is rung, without a slash; empty: it is rung as soon as it may run

    def at(self, worker: WorkerId) -> "Bell":
        """The same bell, to be heard by one worker only."""
        return replace(self, queue=queue_of(worker))
