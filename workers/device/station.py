"""Equips a station with a base model and the engines on it."""

import gc
import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from openrl.catalog.repository import Catalog
from openrl.config import Settings
from openrl.domain.errors import SettingInvalid
from openrl.domain.full_run_errors import FullRunWontFit
from openrl.domain.model import ModelCard
from openrl.machine import free_memory_bytes
from openrl.models.catalogue import find, resolve
from workers.admission import Admitted
from workers.device.loop import DeviceLoop
from workers.expiry import EVERY_SECONDS as EXPIRY_SECONDS
from workers.expiry import expire, release
from workers.model.base import BaseModel, load_base
from workers.model.devices import choose_device, choose_dtype, set_tf32, set_threads, side_by_side
from workers.sample.cache import free_bytes
from workers.sample.copies import Copies
from workers.sample.engine import SampleEngine
from workers.sample.work import SampleWork
from workers.station import Station, step
from workers.ticker import Ticker
from workers.train.balance import EVERY_SECONDS as BALANCE_SECONDS
from workers.train.balance import Balance
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
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


def equip(
    here: Station,
    settings: Settings,
    closing: ExitStack,
    *,
    trains: bool,
    samples: bool,
    member: "Member | None" = None,
) -> ModelCard:
    """Load the base model and put the asked engines on it; rank 0 of a group trains together with the others.

    Raises OperatorError where that cannot be.
    """
    source = str(resolve(settings.base_model, settings.home))
    apart = trains and samples and side_by_side(choose_device(settings.worker.device), settings.worker.threads)
    base = load(source, settings, member, engines=2 if apart else 1)
    trainer = _trainer(base, settings, closing, member) if trains else None
    sampler = _sampler(here, base.twin() if apart else base, source, settings) if samples else None
    loop: DeviceLoop[Batch] = DeviceLoop(trainer, sampler, pack_tokens=pack_tokens(settings, member), apart=apart)
    here.use = loop.use
    if sampler is not None:
        here.works["sample"] = SampleWork(sampler, loop)
        closing.callback(sampler.close)
    loop.start()
    closing.callback(loop.stop)
    if trainer is not None:
        catalog = Catalog(settings.catalog_at)
        closing.callback(catalog.close)
        closing.callback(Ticker("expiry", EXPIRY_SECONDS, lambda: _tidy(here, catalog, settings)).start().stop)
        saving = Saving(here.depot, catalog, sampler.put_files if sampler is not None else None)
        _train(here, settings, closing, trainer, loop, saving)
    card = _card(base, source, settings, trains=trains, samples=samples)
    here.works.update({name: Admitted(work, card) for name, work in here.works.items()})
    return card


def load(source: str, settings: Settings, member: "Member | None" = None, engines: int = 1) -> BaseModel:
    """The base model in this process, or a member's part of it, for so many engines side by side. Raises OperatorError
    where that cannot be."""
    with step(f"base model {source}"):
        wish = settings.worker
        threads = set_threads(wish.threads if member is None else member.place.threads(wish.threads), engines)
        set_tf32(wish.tf32)
        device = choose_device(wish.device) if member is None else member.device
        dtype = choose_dtype(wish.dtype, device)
        base = load_base(source, device=device, dtype=dtype) if member is None else member.load(source, dtype)
        # The model's many small objects stay to the end: out of the collector's sight, it does not walk them again and
        # again between passes (a tenth of a pass of a tiny model).
        gc.collect()
        gc.freeze()
    log.info("on %s in %s with %d threads", device, dtype, threads, extra={"action": "start"})
    return base


def pack_tokens(settings: Settings, member: "Member | None" = None) -> int:
    """Of one pack, over all processes that share it."""
    return settings.train.pack_tokens * (1 if member is None else member.place.world)


def memory_bytes(settings: Settings) -> int | None:
    """For passes, in each process; None looks how much is free."""
    return int(settings.train.memory_gb * 1e9) or None


def _trainer(base: BaseModel, settings: Settings, closing: ExitStack, member: "Member | None") -> TrainEngine:
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
    seat = Seat(base, lambda: free_bytes(base.device))
    try:
        seat.check()
    except FullRunWontFit as error:
        needed, free = (each / 1e9 for each in (error.needed_bytes, error.free_bytes))
        problem = f"a run of all weights takes {needed:.1f} GB here beside the base model and {free:.1f} GB are free"
        raise SettingInvalid("OPENRL_TRAIN__FULL_RUNS", f"{problem}; unset it, or serve a smaller model") from None
    return seat


def _train(
    here: Station,
    settings: Settings,
    closing: ExitStack,
    engine: TrainEngine,
    loop: DeviceLoop[Batch],
    saving: Saving,
) -> None:
    """Training with recovery: at the end every run is in a snapshot, and its lease is given up."""
    residents = Residents()
    paging = Paging(engine, residents, _budgets(settings, engine), lambda run: snapshots.page_out(run))
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
    closing.callback(paging.tell)
    closing.callback(Ticker("snapshots", SNAPSHOT_TICK_SECONDS, snapshots.tick).start().stop)
    if succession is not None:
        give_way = partial(succession.tick, snapshots)
        closing.callback(Ticker("succession", SNAPSHOT_TICK_SECONDS, give_way).start().stop)
    closing.callback(Ticker("balance", BALANCE_SECONDS, balance.tick).start().stop)
    closing.callback(Ticker("paging", PAGING_SECONDS, paging.tell).start().stop)


def _budgets(settings: Settings, engine: TrainEngine) -> Budgets:
    free_device = free_bytes(engine.base.device)
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


def _tidy(here: Station, catalog: Catalog, settings: Settings) -> None:
    expire(catalog, here.depot)
    release(catalog, here.ledger, here.depot, settings.retention)


def _sampler(here: Station, base: BaseModel, source: str, settings: Settings) -> Copies:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    packed = base.pack(free_memory_bytes() // 4)
    log.info("weights packed for decoding: %.0f MB", packed / 1e6, extra={"action": "start"})

    def engine_on(model: BaseModel) -> SampleEngine:
        return SampleEngine(
            model,
            decode=lambda tokens: str(tokenizer.decode(tokens)),
            fetch=here.depot.get_folder,
            max_rows=settings.sample.max_rows,
            cache_tokens=settings.sample.cache_tokens,
        )

    return Copies(
        base,
        engine_on,
        fetch=here.depot.get_folder,
        limit=settings.sample.full_copies,
        free_bytes=lambda: free_bytes(base.device),
    )


def _card(base: BaseModel, source: str, settings: Settings, *, trains: bool, samples: bool) -> ModelCard:
    listed = find(settings.base_model)
    names = {source, *settings.model_aliases, *((listed.name, *listed.aliases) if listed else ())}
    return ModelCard(
        name=settings.base_model,
        aliases=tuple(sorted(names - {settings.base_model})),
        tokenizer_id=source,
        architecture=base.architecture,
        vocab_size=base.vocab_size,
        context_length=base.context_length,
        max_lora_rank=settings.train.max_lora_rank,
        full_runs=trains and settings.train.full_runs,
        trainable=trains,
        sampleable=samples,
    )
