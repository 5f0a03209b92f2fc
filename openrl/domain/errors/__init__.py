"""Errors by who can put them right.

    OpenRLError
    ├── CallerError    asking again won't help
    ├── PassingError   time will help
    └── OperatorError  a human at the machine helps

A leaf takes the facts, passes them to `super().__init__` and builds its sentence in `__str__`, so that it survives
pickling. Catch by branch, at a border (desk, route, supervisor).
"""

from openrl.domain.errors.branches import (
    CallerError,
    NotFoundError,
    OpenRLError,
    OperatorError,
    PassingError,
)
from openrl.domain.errors.full_run import (
    CopyWontFit,
    FullRunsOff,
    FullRunTaken,
    FullRunWontFit,
)
from openrl.domain.errors.installation import (
    BaseModelMissing,
    BytesLost,
    CatalogUnreachable,
    DepotDamaged,
    DepotUnreachable,
    ModelUnsupported,
    SettingInvalid,
)
from openrl.domain.errors.memory import (
    DatumTooLarge,
    MemoryRanOut,
)
from openrl.domain.errors.missing import (
    BatchNotFound,
    CheckpointMissing,
    KeyNotFound,
    MemberUnknown,
    OpNotFound,
    RunNotFound,
    SamplerNotFound,
    SessionNotFound,
    WeightsRemoved,
)
from openrl.domain.errors.op import (
    BatchTooLarge,
    ClaimLost,
    LeaseLost,
    LedgerFull,
    LedgerUnreachable,
    MemberFailed,
    NoRoomForBatch,
    OpCancelled,
    TooManyWaiting,
    TurnPassed,
    TurnUnsettled,
    WornOut,
)
from openrl.domain.errors.request import (
    BodyInvalid,
    BodyTooLarge,
    FieldInvalid,
    KeyRejected,
    ModelUnknown,
    RewardUnknown,
)
from openrl.domain.errors.reward import (
    AnswerUnreadable,
    GraderFailed,
    GraderGaveUp,
    GraderOverdue,
    RewardBroken,
    RewardFailed,
    RewardWithheld,
    SandboxFailed,
)
from openrl.domain.errors.weights import (
    AdapterUnsupported,
    CheckpointExists,
    GradientNotFinite,
    RunLost,
    UpdateNotFinite,
    WeightsNotArrived,
    WeightsUnsupported,
)
from openrl.domain.errors.worker import (
    Draining,
    EngineBusy,
    NoWorker,
)

__all__ = [
    "AdapterUnsupported",
    "AnswerUnreadable",
    "BaseModelMissing",
    "BatchNotFound",
    "BatchTooLarge",
    "BodyInvalid",
    "BodyTooLarge",
    "BytesLost",
    "CallerError",
    "CatalogUnreachable",
    "CheckpointExists",
    "CheckpointMissing",
    "ClaimLost",
    "CopyWontFit",
    "DatumTooLarge",
    "DepotDamaged",
    "DepotUnreachable",
    "Draining",
    "EngineBusy",
    "FieldInvalid",
    "FullRunTaken",
    "FullRunWontFit",
    "FullRunsOff",
    "GraderFailed",
    "GraderGaveUp",
    "GraderOverdue",
    "GradientNotFinite",
    "KeyNotFound",
    "KeyRejected",
    "LeaseLost",
    "LedgerFull",
    "LedgerUnreachable",
    "MemberFailed",
    "MemberUnknown",
    "MemoryRanOut",
    "ModelUnknown",
    "ModelUnsupported",
    "NoRoomForBatch",
    "NoWorker",
    "NotFoundError",
    "OpCancelled",
    "OpNotFound",
    "OpenRLError",
    "OperatorError",
    "PassingError",
    "RewardBroken",
    "RewardFailed",
    "RewardUnknown",
    "RewardWithheld",
    "RunLost",
    "RunNotFound",
    "SamplerNotFound",
    "SandboxFailed",
    "SessionNotFound",
    "SettingInvalid",
    "TooManyWaiting",
    "TurnPassed",
    "TurnUnsettled",
    "UpdateNotFinite",
    "WeightsNotArrived",
    "WeightsRemoved",
    "WeightsUnsupported",
    "WornOut",
]
