"""Equips a station with a base model and the engines on it."""

import gc
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from openrl.catalog.repository import Catalog
from openrl.config import Settings
from openrl.domain.model import ModelCard
from openrl.machine import free_memory_bytes
from openrl.models.catalogue import resolve
from workers.admission import Admitted
from workers.card import card_of
from workers.device.loop import DeviceLoop
from workers.device.training import pack_tokens, train, trainer_on
from workers.expiry import EVERY_SECONDS as EXPIRY_SECONDS
from workers.expiry import expire, prune, release
from workers.metrics import device_told
from workers.model.allocation import available_bytes
from workers.model.base import BaseModel, load_base
from workers.model.devices import choose_device, choose_dtype, set_tf32, set_threads, side_by_side
from workers.sample.judging import sample_work
from workers.sample.policy_source import policy_source
from workers.sample.torch.copies import Copies
from workers.sample.torch.engine import SampleEngine
from workers.sample.torch.trial import check_decoding
from workers.sample.work import SampleWork
from workers.station import Station, step
from workers.ticker import Ticker
from workers.train.batch import Batch
from workers.train.saving import Saving

if TYPE_CHECKING:  # groups are rare, and what they need of torch is slow to import
    from workers.train.group.member import Member

log = logging.getLogger(__name__)


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
    trainer = trainer_on(base, settings, closing, member) if trains else None
    sampler = _sampler(here, base.twin() if apart else base, source, settings, closing) if samples else None
    loop: DeviceLoop[Batch] = DeviceLoop(trainer, sampler, pack_tokens=pack_tokens(settings, member), apart=apart)
    here.use, here.tell_timeline = loop.use, loop.timeline.tell
    closing.enter_context(device_told(loop.use, lambda: sampler.rows if sampler is not None else 0))
    if sampler is not None:
        here.works["sample"] = sample_work(SampleWork(sampler, loop.wake), source, here.ledger.read)
    loop.start()
    closing.callback(loop.stop)
    if trainer is not None:
        catalog = Catalog(settings.catalog_at)
        closing.callback(catalog.close)
        closing.callback(Ticker("expiry", EXPIRY_SECONDS, lambda: _tidy(here, catalog, settings)).start().stop)
        saving = Saving(here.ledger, here.depot, catalog, sampler.put if sampler is not None else None)
        train(here, settings, closing, trainer, loop, saving)
    card = card_of(
        source,
        settings,
        architecture=base.architecture,
        vocab_size=base.vocab_size,
        context_length=base.context_length,
        trains=trains,
        samples=samples,
    )
    here.works.update({name: Admitted(work, card) for name, work in here.works.items()})
    return card


def load(source: str, settings: Settings, member: "Member | None" = None, engines: int = 1) -> BaseModel:
    """The base model in this process, or a member's part of it, for so many engines side by side. Raises OperatorError
    where that cannot be."""
    with step("base model", source):
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


def _tidy(here: Station, catalog: Catalog, settings: Settings) -> None:
    expire(catalog, here.ledger, here.depot)
    prune(catalog, here.ledger, here.depot, settings.retention)
    release(catalog, here.ledger, here.depot, settings.retention)


def _sampler(here: Station, base: BaseModel, source: str, settings: Settings, closing: ExitStack) -> Copies:
    from transformers import AutoTokenizer

    fetch, give_up = policy_source(here.depot, settings)
    tokenizer = AutoTokenizer.from_pretrained(source)
    with step("trial of the sample engine"):
        check_decoding(base, source)
    packed = base.pack(free_memory_bytes() // 4)
    log.info("weights packed for decoding: %.0f MB", packed / 1e6, extra={"action": "start"})

    def engine_on(model: BaseModel) -> SampleEngine:
        return SampleEngine(
            model,
            decode=lambda tokens: str(tokenizer.decode(tokens)),
            fetch=fetch,
            max_rows=settings.sample.max_rows,
            cache_tokens=settings.sample.cache_tokens,
            prefill_tokens=settings.sample.prefill_tokens,
        )

    sampler = Copies(
        base,
        engine_on,
        fetch=fetch,
        limit=settings.sample.full_copies,
        free_bytes=lambda: available_bytes(base.device),
    )
    closing.callback(sampler.close)
    closing.callback(give_up)
    return sampler
