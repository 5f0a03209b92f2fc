"""Weights that a user saved by name."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from openrl.domain.ids import DepotKey, OpId, RunId, TenantId


class CheckpointKind(StrEnum):
    """The middle part of a `tinker://RUN/KIND/NAME` path."""

    WEIGHTS = "weights"  #: adapter and optimizer: training can go on from it
    SAMPLER_WEIGHTS = "sampler_weights"  #: adapter only


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPath:
    run: RunId
    kind: CheckpointKind
    name: str

    def __str__(self) -> str:
        return f"tinker://{self.run}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    path: CheckpointPath
    tenant: TenantId
    key: DepotKey  #: folder in the depot
    op: OpId  #: the operation that wrote it, so that a repeat is recognised
    size_bytes: int
    created_at: datetime
    has_optimizer: bool = False
    expires_at: datetime | None = None
    user_metadata: dict[str, str] = field(default_factory=dict)
