"""Equips a station for training: the train engine, and what keeps its runs recoverable, in memory and shared out."""

import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from openrl.config import Settings
from openrl.domain.errors import FullRunWontFit, SettingInvalid
from openrl.machine import free_memory_bytes
from workers.device.loop import DeviceLoop
from workers.model.allocation import available_bytes
from workers.model.base import BaseModel
from workers.station import Station
from workers.ticker import Ticker
from workers.train.balance import EVERY_SECONDS as BALANCE_SECONDS
from workers.train.balance import Balance
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
from workers.train.handover import HandOver
from workers.train.paging import Paging
from workers.train.residents import Residents
from workers.train.saving import Saving
from workers.train.seat import Seat, needed_bytes
from workers.train.seating import Seating
from workers.train.snapshots import Snapshots
from workers.train.succession import Succession
from workers.train.tiers import Budgets
from workers.train.work import TrainWork

if TYPE_CHECKING:  # groups are rare, and what they need of torch is slow to import
    from workers.train.group.member import Member

log = logging.getLogger(__name__)

SNAPSHOT_TICK_SECONDS = 0.5
PAGING_SECONDS = 10.0  #: between two lines of the log about runs that came and went


def pack_tokens(settings: Settings, member: "Member | None" = None) -> int:
    """Of one pack, over all processes that share it."""
    return settings.train.pack_tokens * (1 if member is None else member.place.world)


def memory_bytes(settings: Settings) -> int | None:
    """For passes, in each process; None looks how much is free."""
    return int(settings.train.memory_gb * 1e9) or None


def trainer_on(base: BaseModel, settings: Settings, closing: ExitStack, member: "Member | None") -> TrainEngine:
    """The train engine, with the group's others where there is one. Raises SettingInvalid."""
    name, tokens, memory = settings.base_model, pack_tokens(settings, member), memory_bytes(settings)
    if member is None:
        return TrainEngine(base, name=name, pack_tokens=tokens, memory_bytes=memory, seat=_seat(base, settings))
    engine = member.engine(base, name=name, pack_tokens=tokens, memory_bytes=memory)
    closing.callback(member.close, engine)
    return engine


def _seat(base: BaseModel, settings: Settings) -> Seat | None:
    """For runs of all weights, if they are enabled. Raises SettingInvalid where none has room."""
    if not settings.train.full_runs:
        return None
    seat = Seat(base, lambda: available_bytes(base.device))
    try:
        seat.check()
    except FullRunWontFit as error:
        needed, free = (each / 1e9 for each in (error.needed_bytes, error.free_bytes))
        problem = f"a run of all weights takes {needed:.1f} GB here beside the base model and {free:.1f} GB are free"
        raise SettingInvalid("OPENRL_TRAIN__FULL_RUNS", f"{problem}; unset it, or serve a smaller model") from None
    return seat


def train(
    here: Station,
    settings: Settings,
    closing: ExitStack,
    engine: TrainEngine,
    loop: DeviceLoop[Batch],
    saving: Saving,
) -> None:
    """Training with recovery: at the end every run is in a snapshot, and its lease is given up."""
    residents = Residents()
    paging = Paging(engine, residents, budgets_of(settings, engine), lambda run: snapshots.page_out(run))
    snapshots = Snapshots(
        residents,
        here.ledger,
        here.depot,
        state=engine.snapshot,
        forget=paging.forget,
        every_seconds=settings.train.snapshot_seconds,
        idle_seconds=settings.train.idle_seconds,
    )
    seating = succession = None
    if engine.seat is not None:
        succession = Succession(engine.seat, residents)
        seating = Seating(engine.seat, succession, loop)
    here.works["train"] = TrainWork(engine, loop, here.ledger, here.depot, saving, residents, paging, seating=seating)
    balance = Balance(here.ledger, residents, snapshots, stays=engine.is_full)
    closing.callback(here.ledger.leave)
    closing.callback(snapshots.flush)
    handover = HandOver(residents, snapshots)
    here.at_drain.append(handover.begin)
    closing.callback(handover.finish)
    closing.callback(paging.tell)
    closing.callback(Ticker("snapshots", SNAPSHOT_TICK_SECONDS, snapshots.tick).start().stop)
    if succession is not None:
        give_way = partial(succession.tick, snapshots)
        closing.callback(Ticker("succession", SNAPSHOT_TICK_SECONDS, give_way).start().stop)
    closing.callback(Ticker("balance", BALANCE_SECONDS, balance.tick).start().stop)
    closing.callback(Ticker("paging", PAGING_SECONDS, paging.tell).start().stop)


def budgets_of(settings: Settings, engine: TrainEngine) -> Budgets:
    free_device = available_bytes(engine.base.device)
    if engine.seat is not None:  # the seat's memory is kept for it
        free_device = max(0, free_device - needed_bytes(engine.base))
    budgets = Budgets.of(
        device_mb=settings.train.device_memory_mb,
        host_mb=settings.train.host_memory_mb,
        free_device=free_device,
        free_host=free_memory_bytes(),
        apart=engine.ferry.apart,
    )
    host = "" if budgets.host is None else f", {budgets.host / 1e6:.0f} MB of main memory"
    log.info("runs may take %.0f MB of the device%s", budgets.device / 1e6, host, extra={"action": "start"})
    return budgets
