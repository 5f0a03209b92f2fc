"""A process's place in its group, as torchrun tells it, and who may have one. Knows no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from openrl.config import Train
from openrl.domain.errors import SettingInvalid
from openrl.machine import usable_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    rank: int
    world: int  #: processes of the group, over all machines
    local_rank: int
    local_world: int  #: those on this machine
    host: str  #: where rank 0 is

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def threads(self, wish: int) -> int:
        """CPU threads of this process: as wished, or its share of this machine's cores."""
        return wish or max(1, usable_cores() // self.local_world)


def check_group(role: str, train: Train, asked_by: str) -> None:
    """Raises SettingInvalid for what a group of processes cannot be or do; `asked_by` is how it was asked for."""
    if role != "train":
        raise SettingInvalid(asked_by, f"only a train worker can be a group of processes, not a {role} worker")
    if train.full_runs:
        problem = "a run of all weights needs a copy of the base model, which a group of processes has cut over them"
        raise SettingInvalid(
            "OPENRL_TRAIN__FULL_RUNS", f"{problem}; unset it, or train with one process (no {asked_by})"
        )


def place_in(environment: Mapping[str, str]) -> Place | None:
    """None for a process that torchrun did not start, or that it started alone."""
    if "TORCHELASTIC_RUN_ID" not in environment or int(environment["WORLD_SIZE"]) == 1:
        return None
    return Place(
        rank=int(environment["RANK"]),
        world=int(environment["WORLD_SIZE"]),
        local_rank=int(environment["LOCAL_RANK"]),
        local_world=int(environment["LOCAL_WORLD_SIZE"]),
        host=environment["MASTER_ADDR"],
    )
