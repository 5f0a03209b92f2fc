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
class SideUse:
    """What one side, training or sampling, had of the device. Only ever grows."""

    seconds: float = 0.0
    passes: int = 0  #: packs of batches, or steps of the sample engine
    tokens: int = 0  #: in the packs, or drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """How busy a device was. Two of them, told one after the other, give the share in between."""

    seconds: float = 0.0  #: since the device's loop began
    busy_seconds: float = 0.0  #: of these, those in which something ran; both sides may at once, on a CPU
    train: SideUse = field(default_factory=SideUse)
    sample: SideUse = field(default_factory=SideUse)

    @property
    def busy(self) -> float:
        """The share of the time that something ran, 0 to 1."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    id: WorkerId
    role: Role
    host: str
    pid: int
    cards: tuple[ModelCard, ...] = field(default=())  #: of the base models it serves; none for rewards
    rewards: tuple[str, ...] = field(default=())  #: names of the reward functions it has
    slots: int  #: ops it may hold at once
    started_at: datetime
    draining: bool = False  #: it was told to stop and takes nothing more
    use: DeviceUse | None = None  #: as of the announcement; None without a device
