"""What a device did and when: stretches of work, each with whose it was. A worker tells them period by period."""

from dataclasses import dataclass
from enum import StrEnum

from openrl.domain.ids import RunId, SamplerId, TenantId


class Doing(StrEnum):
    PACK = "pack"  #: batches of several runs, in passes that they share
    UPDATE = "update"  #: optimizer steps taken together
    SAMPLE = "sample"  #: prompts and decode steps
    CALL = "call"  #: something else that a run needs of the device


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a part of the work was."""

    tenant: TenantId
    name: RunId | SamplerId  #: a sampler's where something was sampled, else a run's


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One pack, one update, or decode steps that followed one another for the same owners."""

    doing: Doing
    began: float  #: seconds since 1970 on the worker's clock, as all times here
    ended: float
    of: frozenset[Owner] = frozenset()  #: none of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What a worker tells in one go: all stretches that ended in that time, by their end."""

    began: float
    ended: float
    stretches: tuple[Stretch, ...] = ()
    left_out: int = 0  #: further stretches, which were too many to be told
