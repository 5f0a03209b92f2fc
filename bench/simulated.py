"""A sample worker without a model: its engine takes `--step-ms` for a step, however many rows draw a token in it, as a
GPU would, and leaves the processor alone. Everything around the engine is real: the worker joins the service whose
settings are in the environment, and serves a base model named `simulated`.
"""

import argparse
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from openrl.config import Settings, load
from openrl.domain.errors import EngineBusy
from openrl.domain.model import ModelCard
from openrl.domain.sampling import SampleResult, Sequence, StopReason
from openrl.domain.stretch import Owner
from openrl.models.catalogue import resolve
from workers.card import card_of
from workers.device.loop import DeviceLoop
from workers.rotation import Rotation
from workers.sample.judging import sample_work
from workers.sample.request import QUANTUM, SampleRequest
from workers.sample.results import sequence
from workers.sample.work import SampleWork
from workers.start import run
from workers.station import Station

NAME: Final = "simulated"
TOKENIZER: Final = "tiny"  #: whose tokens it says
VOCABULARY, CONTEXT = 512, 2048


@dataclass(slots=True)
class Job:
    request: SampleRequest
    future: "Future[SampleResult]"
    drawn: int = 0  #: tokens of each of its samples
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.request.num_samples

    def over(self) -> bool:
        return self.future.done()


class SimulatedEngine:
    """A `Sampler` and a `Stepper`: whole requests are let in, in turn, while there are rows."""

    def __init__(self, step_seconds: float, max_rows: int) -> None:
        self._step_seconds, self._max_rows = step_seconds, max_rows
        self._lock = threading.Lock()
        self._rotation: Rotation[Job] = Rotation(QUANTUM, Job.over)
        self._waiting: set[int] = set()
        self._running: list[Job] = []
        self.tokens_drawn = 0

    @property
    def served(self) -> frozenset[Owner]:
        return frozenset()

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._running)

    def submit(self, request: SampleRequest) -> "Future[SampleResult]":
        job = Job(request, Future())
        with self._lock:
            self._waiting.add(id(job.future))
            self._rotation.add(job, tenant=request.tenant, owner=request.sampler)
        return job.future

    def cancel(self, future: "Future[SampleResult]") -> None:
        with self._lock:
            self._waiting.discard(id(future))
        future.cancel()

    def step(self) -> bool:
        self._let_in()
        time.sleep(self._step_seconds)
        for job in self._running:
            job.drawn += 1
            self.tokens_drawn += job.rows
            if job.drawn >= job.request.params.max_tokens and not job.over():
                job.future.set_result(_result(job.request))
        self._running = [job for job in self._running if not job.over()]
        return not self.idle

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
        for job in self._running:
            if not job.over():
                job.future.set_exception(EngineBusy("it is shutting down"))

    def _let_in(self) -> None:
        with self._lock:
            self._rotation.new_round()
            rows = sum(job.rows for job in self._running)
            while (job := self._rotation.first()) is not None and rows + job.rows <= max(self._max_rows, job.rows):
                self._rotation.charge(job.rows * job.request.sample_tokens, gone=True)
                self._waiting.discard(id(job.future))
                self._running.append(job)
                rows += job.rows


def _result(request: SampleRequest) -> SampleResult:
    return SampleResult(sequences=tuple(_said(request) for _ in range(request.num_samples)))


def _said(request: SampleRequest) -> Sequence:
    """The beginning of the prompt, again and again."""
    tokens = [request.prompt[at % len(request.prompt)] for at in range(request.params.max_tokens)]
    return sequence(tokens, [-1.0] * len(tokens), StopReason.LENGTH, None)


def equip_with(step_seconds: float) -> Any:
    def equip(here: Station, settings: Settings, closing: ExitStack, **_: object) -> ModelCard:
        source = str(resolve(TOKENIZER, settings.home))
        engine = SimulatedEngine(step_seconds, settings.sample.max_rows)
        loop: DeviceLoop[Any] = DeviceLoop(None, engine)
        here.use = loop.use
        here.works["sample"] = sample_work(SampleWork(engine, loop.wake), source, here.ledger.read)
        loop.start()
        closing.callback(engine.close)
        closing.callback(loop.stop)
        return card_of(
            source,
            settings,
            architecture=NAME,
            vocab_size=VOCABULARY,
            context_length=CONTEXT,
            trains=False,
            samples=True,
        )

    return equip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step-ms", type=float, required=True)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    run("sample", load(base_model=NAME), equip_with(args.step_ms / 1e3))


if __name__ == "__main__":
    main()
