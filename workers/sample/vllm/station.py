"""Equips a station with vLLM: the sibling of `workers/device/station.py` for workers that only sample."""

import json
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import torch
from transformers import AutoTokenizer

from openrl.config import Settings
from openrl.domain.model import ModelCard
from openrl.machine import free_memory_bytes
from openrl.models.catalogue import resolve
from workers.admission import Admitted
from workers.card import card_of
from workers.metrics import device_told
from workers.model.devices import choose_device, choose_dtype
from workers.sample.judging import sample_work
from workers.sample.policy_source import policy_source
from workers.sample.vllm.adapters import Adapters
from workers.sample.vllm.engine import SampleEngine
from workers.sample.vllm.facts import Facts, facts_of
from workers.sample.vllm.launch import Wish, start
from workers.sample.work import SampleWork
from workers.station import Station, step

log = logging.getLogger(__name__)

EXIT_SECONDS = 10.0  #: that a worker without an engine gets to hand back what it holds
BROKEN = 70  #: its exit status (sysexits' EX_SOFTWARE)
MOST_LORAS, MOST_CPU_LORAS = 8, 64


def equip(here: Station, settings: Settings, closing: ExitStack) -> ModelCard:
    """Start vLLM on the base model. Raises OperatorError where that cannot be."""
    source = str(resolve(settings.base_model, settings.home))
    facts = facts_of(source, settings.sample.vllm.max_model_len)
    wish = wish_of(source, facts, settings)
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="openrl-adapters-")))
    tokenizer = AutoTokenizer.from_pretrained(source)
    fetch, give_up = policy_source(here.depot, settings)
    adapters = Adapters(folder, fetch=fetch, targets=facts.targets, limit=wish.max_cpu_loras)
    family: list[psutil.Process] = []  #: vLLM's processes
    with step("vLLM with", source):
        engine = SampleEngine(
            lambda: start(wish),
            facts=facts,
            decode=lambda tokens: str(tokenizer.decode(tokens)),
            adapters=adapters,
            places=wish.places,
            died=lambda: _leave(here, family),
        )
        family += psutil.Process().children(recursive=True)
    closing.callback(engine.close)
    closing.callback(give_up)
    here.use = engine.usage.read
    closing.enter_context(device_told(engine.usage.read, lambda: engine.usage.rows, passes=False))
    log.info(
        "vLLM in %s; adapters: %d in a step, %d in memory", wish.dtype, wish.max_loras, wish.max_cpu_loras,
        extra={"action": "start"},
    )  # fmt: skip
    card = card_of(
        source,
        settings,
        architecture=facts.architecture,
        vocab_size=facts.vocab_size,
        context_length=facts.context_length,
        trains=False,
        samples=True,
    )
    here.works["sample"] = Admitted(sample_work(SampleWork(engine), source, here.ledger.read), card)
    return card


def wish_of(source: str, facts: Facts, settings: Settings) -> Wish:
    """What the settings ask of vLLM, and the machine's answer where they leave it open."""
    device = choose_device(settings.worker.device)
    dtype = choose_dtype(settings.worker.dtype, device)
    mine = settings.sample.vllm
    adapter = facts.lora_bytes(settings.train.max_lora_rank, dtype.itemsize)
    main = free_memory_bytes()
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else main
    loras = mine.max_loras or _fitting(memory // 20, adapter, MOST_LORAS)
    return Wish(
        source=source,
        dtype=str(dtype).removeprefix("torch."),
        context_length=facts.context_length,
        max_rows=settings.sample.max_rows,
        max_lora_rank=settings.train.max_lora_rank,
        max_loras=loras,
        max_cpu_loras=max(loras, mine.max_cpu_loras or _fitting(main // 10, adapter, MOST_CPU_LORAS)),
        targets=facts.targets,
        tensor_parallel=mine.tensor_parallel,
        memory_share=mine.memory_share,
        cache_bytes=int(mine.cache_gb * 1e9),
        threads=settings.worker.threads if device.type == "cpu" else 0,
        on_cpu=device.type == "cpu",
        extra=json.loads(mine.extra or "{}"),
    )


def _fitting(memory: int, each: int, most: int) -> int:
    """How many fit, at least one."""
    return max(1, min(most, memory // each))


def _leave(here: Station, family: Iterable[psutil.Process]) -> None:
    """The engine is dead: hand back what is held, take nothing more, and exit, so that a supervisor starts another.

    That one must find the device free."""
    log.error("vLLM's engine process ended; this worker exits", extra={"action": "exit"})
    here.broken = BROKEN
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    last = threading.Timer(EXIT_SECONDS, os._exit, (BROKEN,))
    last.daemon = True
    last.start()
    os.kill(os.getpid(), signal.SIGTERM)
