"""Equips a station with a base model and the engines on it."""

import gc
import logging
from contextlib import ExitStack

from openrl.catalog.repository import Catalog
from openrl.config import Settings
from openrl.domain.model import ModelCard
from openrl.models.catalogue import find, resolve
from workers.admission import Admitted
from workers.device.loop import DeviceLoop
from workers.expiry import EVERY_SECONDS as EXPIRY_SECONDS
from workers.expiry import expire, release
from workers.model.base import BaseModel, load_base
from workers.model.devices import choose_device, choose_dtype, set_tf32, set_threads
from workers.sample.engine import SampleEngine
from workers.sample.work import SampleWork
from workers.station import Station, step
from workers.ticker import Ticker
from workers.train.balance import EVERY_SECONDS as BALANCE_SECONDS
from workers.train.balance import Balance
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
from workers.train.residents import Residents
from workers.train.saving import Saving
from workers.train.snapshots import Snapshots
from workers.train.work import TrainWork

log = logging.getLogger(__name__)

SNAPSHOT_TICK_SECONDS = 0.5


def equip(here: Station, settings: Settings, closing: ExitStack, *, trains: bool, samples: bool) -> ModelCard:
    """Load the base model and put the asked engines on it. Raises OperatorError where that cannot be."""
    source = str(resolve(settings.base_model, settings.home))
    with step(f"base model {source}"):
        threads = set_threads(settings.worker.threads)
        set_tf32(settings.worker.tf32)
        device = choose_device(settings.worker.device)
        dtype = choose_dtype(settings.worker.dtype, device)
        base = load_base(source, device=device, dtype=dtype)
        # The model's many small objects stay to the end: out of the collector's sight, it does not walk them again and
        # again between passes (a tenth of a pass of a tiny model).
        gc.collect()
        gc.freeze()
    log.info("on %s in %s with %d threads", device, dtype, threads, extra={"action": "start"})
    trainer = TrainEngine(base, name=settings.base_model, pack_tokens=settings.train.pack_tokens) if trains else None
    sampler = _sampler(here, base, source, settings) if samples else None
    loop: DeviceLoop[Batch] = DeviceLoop(trainer, sampler, pack_tokens=settings.train.pack_tokens)
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
    work = TrainWork(engine, loop, here.ledger, here.depot, saving, residents)
    snapshots = Snapshots(
        residents,
        here.ledger,
        here.depot,
        state=work.state,
        forget=work.forget,
        every_seconds=settings.train.snapshot_seconds,
        idle_seconds=settings.train.idle_seconds,
    )
    here.works["train"] = work
    balance = Balance(here.ledger, residents, snapshots)
    closing.callback(here.ledger.leave)
    closing.callback(snapshots.flush)
    closing.callback(Ticker("snapshots", SNAPSHOT_TICK_SECONDS, snapshots.tick).start().stop)
    closing.callback(Ticker("balance", BALANCE_SECONDS, balance.tick).start().stop)


def _tidy(here: Station, catalog: Catalog, settings: Settings) -> None:
    expire(catalog, here.depot)
    release(catalog, here.ledger, here.depot, settings.retention)


def _sampler(here: Station, base: BaseModel, source: str, settings: Settings) -> SampleEngine:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    return SampleEngine(
        base,
        decode=lambda tokens: str(tokenizer.decode(tokens)),
        fetch=here.depot.get_folder,
        max_rows=settings.sample.max_rows,
        cache_tokens=settings.sample.cache_tokens,
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
        trainable=trains,
        sampleable=samples,
    )
