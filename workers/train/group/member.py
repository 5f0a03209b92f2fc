"""A process as a member of its group: joined, watched, with its part of the base model and an engine on it."""

import gc
import logging
import os
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from openrl.domain.errors import SettingInvalid
from workers.model.base import BaseModel, load_base
from workers.model.devices import choose_device
from workers.model.sharding import shard
from workers.train.engine import TrainEngine
from workers.train.group.engine import GroupEngine
from workers.train.group.follower import follow
from workers.train.group.link import Link, OutOfStep
from workers.train.group.place import Place
from workers.train.group.pulse import Lost, Pulse
from workers.train.group.split import Split

log = logging.getLogger(__name__)

#: Exit status of a rank that ended because the group cannot go on (sysexits' EX_TEMPFAIL): start it again.
GROUP_LOST: Final = 75


def end_process(why: str) -> None:
    """At once and without a word to the ledger, as if killed: whatever this rank waits for may never come."""
    log.critical("the group is lost: %s", why, extra={"action": "group"})
    logging.shutdown()
    os._exit(GROUP_LOST)


class Member:
    """Made by `join`. `lost` ends the process."""

    def __init__(self, place: Place, device: torch.device, wait_seconds: float, lost: Lost = end_process) -> None:
        """Meets the other ranks, who must come within `wait_seconds`; none may be silent for longer after."""
        self.place, self.device, self._lost = place, device, lost
        self.link = Link(wait_seconds)
        self._pulse = Pulse(lost, wait_seconds)
        if place.leads:
            self.link.send(self._pulse.listen())
            self._pulse.accept(place.world - 1, wait_seconds)
        else:
            self._pulse.connect(place.host, self.link.receive(), wait_seconds)

    def load(self, source: str, dtype: torch.dtype) -> BaseModel:
        """This rank's part of a base model; see `load_base` for what is raised. The ranks of a machine load one after
        another, so that its memory holds one whole copy at most."""
        mesh = init_device_mesh(self.device.type, (self.place.world,))
        base = None
        for turn in range(self.link.most(self.place.local_world)):
            if turn == self.place.local_rank:
                base = load_base(source, device=torch.device("cpu"), dtype=dtype)
                shard(base, mesh, self.device)
                gc.collect()
            self.link.meet()
        assert base is not None, "every rank has a turn"
        self.must_agree(f"{dtype}, folds: {base.folds}, {base.layout}")
        return base

    def must_agree(self, settings: str) -> None:
        """Raises SettingInvalid where this is not the same on all ranks."""
        try:
            self.link.agree(settings)
        except OutOfStep:
            problem = f"processes of a group must have the same settings and base model; here: {settings:.200}"
            raise SettingInvalid("torchrun", problem) from None

    def engine(self, base: BaseModel, *, name: str, pack_tokens: int, memory_bytes: int | None = None) -> GroupEngine:
        """Rank 0's; the others must `follow`. `pack_tokens` are those of all ranks together, `memory_bytes` this
        one's."""
        return GroupEngine(base, self.link, self._lost, name=name, pack_tokens=pack_tokens, memory_bytes=memory_bytes)

    def follow(self, base: BaseModel, *, pack_tokens: int, memory_bytes: int | None = None) -> None:
        """Any other rank's work, until rank 0 closes its membership."""
        sharing = Split(base, self.link)
        engine = TrainEngine(base, pack_tokens=pack_tokens, memory_bytes=memory_bytes, sharing=sharing)
        try:
            follow(self.link, engine)
        except Exception as error:
            log.exception("a verb failed on rank %d", self.place.rank, extra={"action": "group"})
            self._lost(f"{type(error).__name__} on rank {self.place.rank}")
            raise
        self._leave()

    def close(self, engine: GroupEngine) -> None:
        """Rank 0: everybody goes home."""
        engine.stop()
        self._leave()

    def _leave(self) -> None:
        self._pulse.end()  # from here on a connection that closes is no death
        self.link.meet()
        self._pulse.close()
        dist.destroy_process_group()


def join(place: Place, *, device: str, wait_seconds: float) -> Member:
    """Under torchrun's environment. `device` is a wish. Raises SettingInvalid for one that a group cannot have."""
    chosen = device_of(place, device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    log.info("rank %d of %d on %s", place.rank, place.world, chosen, extra={"action": "start"})
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=timedelta(seconds=wait_seconds))
    return Member(place, chosen, wait_seconds)


def device_of(place: Place, wish: str) -> torch.device:
    """Each rank of a machine has a GPU of its own, by its number there; or all of them compute on the CPU."""
    named = wish if wish != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    device = choose_device(named)
    if device.type == "mps":
        raise SettingInvalid("OPENRL_WORKER__DEVICE", "a group of processes computes on cuda or cpu")
    if device.type == "cpu":
        return device
    if place.local_world > torch.cuda.device_count():
        problem = f"{place.local_world} processes need as many GPUs; this machine has {torch.cuda.device_count()}"
        raise SettingInvalid("OPENRL_WORKER__DEVICE", problem)
    return torch.device("cuda", place.local_rank)
