"""A worker process as it tells of itself."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from openrl.domain.ids import WorkerId
from openrl.domain.model import ModelCard


class Role(StrEnum):
    DEVICE = "device"  #: trains and samples on one copy of the base weights
    TRAIN = "train"
    SAMPLE = "sample"
    REWARD = "reward"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    id: WorkerId
    role: Role
    host: str
    pid: int
    cards: tuple[ModelCard, ...] = field(default=())  #: of the base models it serves; none for rewards
    slots: int  #: ops it works on at once
    started_at: datetime
