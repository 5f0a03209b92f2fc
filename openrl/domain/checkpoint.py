"""Weights that a user saved by name."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey, OpId, RunId, TenantId


class CheckpointKind(StrEnum):
    """The middle part of a `tinker://RUN/KIND/NAME` path."""

    WEIGHTS = "weights"  #: with the optimizer: training can go on from it
    SAMPLER_WEIGHTS = "sampler_weights"  #: without it


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def check_name(name: str, field: str = "path") -> str:
    """The name, if it may name a checkpoint. Raises FieldInvalid of `field` otherwise."""
    if not NAME.fullmatch(name):
        raise FieldInvalid(
            field, f"{name!r} cannot name a checkpoint: use 1 to 128 of A-Z a-z 0-9 . _ - and do not begin with . or -"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPath:
    run: RunId
    kind: CheckpointKind
    name: str

    def __str__(self) -> str:
        return f"tinker://{self.run}/{self.kind}/{self.name}"

    @classmethod
    def parse(cls, path: str, field: str = "path") -> "CheckpointPath":
        """Raises FieldInvalid, of the request's `field`, for anything but `tinker://RUN/KIND/NAME` with a kind and a
        name of ours."""
        scheme, _, rest = path.partition("://")
        parts = rest.split("/")
        if scheme != "tinker" or len(parts) != 3 or parts[1] not in set(CheckpointKind):
            kinds = " or ".join(CheckpointKind)
            raise FieldInvalid(field, f"{path!r} is not of the form tinker://RUN/KIND/NAME with KIND {kinds}")
        check_name(parts[2], field)
        return cls(run=RunId(parts[0]), kind=CheckpointKind(parts[1]), name=parts[2])


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
