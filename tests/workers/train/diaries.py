"""Train works on an engine that remembers a run as the list of what was done to it, so that two states can be compared
exactly; and the ledger and depot that they share."""

import json
from collections.abc import Callable
from copy import copy
from typing import Any

from openrl.depot.filesystem import FsspecDepot
from openrl.domain.datum import Loss
from openrl.domain.errors import (
    CallerError,
    FieldInvalid,
    GradientNotFinite,
)
from openrl.domain.ids import OpId, RunId, TenantId
from openrl.domain.op import Bell, CreateRun, ForwardBackward, OptimStep, TrainAction, TrainOp
from openrl.domain.outcome import BatchResult, failure_of
from openrl.domain.run import AdamParams, LoraSpec
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Held
from workers.train.batch import Batch
from workers.train.paging import Paging
from workers.train.residents import Residents
from workers.train.snapshots import Snapshots
from workers.train.tiers import Budgets
from workers.train.work import TrainWork

RUN = RunId("s:train:0")
ROOMY = Budgets(device=1_000_000, host=None)


class Diary(list[str]):
    """What was done to a run; as large as its first entry says."""

    @property
    def most_bytes(self) -> int:
        return int(self[0].removeprefix("rank "))

    size_bytes = most_bytes


class DiaryEngine:
    """A run is the diary of its changes."""

    def __init__(self) -> None:
        self.diaries: dict[str, Diary] = {}
        self.in_host: set[str] = set()
        self.calls = 0
        self.full: CallerError | None = None

    def has(self, run: str) -> bool:
        return run in self.diaries

    def is_paged(self, run: str) -> bool:
        return run in self.diaries

    def run(self, run: str) -> Diary:
        return self.diaries[run]

    def put(self, run: str, state: Diary) -> None:
        self.diaries[run] = state

    def to_device(self, run: str) -> None:
        self.in_host.discard(run)

    def to_host(self, run: str) -> int:
        self.in_host.add(run)
        return self.diaries[run].size_bytes

    def fresh(self, lora: LoraSpec) -> Diary:
        self.calls += 1
        return Diary([f"rank {lora.rank}"])

    def restored(self, files: dict[str, bytes]) -> Diary:
        return Diary(json.loads(files["diary"]))

    def drop(self, run: str) -> None:
        self.diaries.pop(run, None)
        self.in_host.discard(run)

    def snapshot(self, run: str) -> dict[str, bytes]:
        return {"diary": json.dumps(self.diaries[run]).encode()}

    def optim_step(self, run: str, adam: AdamParams) -> dict[str, float]:
        assert run not in self.in_host
        self.calls += 1
        if adam.learning_rate == 666:
            self.diaries[run].append("gradient dropped")
            raise GradientNotFinite("optim_step")
        self.diaries[run].append(f"step {adam.learning_rate}")
        return {"lr": adam.learning_rate}

    def pass_over(self, batch: Batch) -> BatchResult:
        assert batch.run_id not in self.in_host
        self.calls += 1
        if self.full is not None:
            raise self.full
        if batch.loss is Loss.DRO:
            raise FieldInvalid("data", "bad")
        if not batch.forward_only:
            self.diaries[batch.run_id].append("pass")
        return BatchResult(logprobs=(), metrics={})


class AtOnce:
    """A device loop without a thread."""

    def __init__(self, engine: DiaryEngine) -> None:
        self._engine = engine
        self.since: list[float] = []

    def call(self, function: Callable[[], Any]) -> Any:
        return function()

    def end_training(self) -> None:
        """Nothing waits here."""

    def forward_backward(self, batch: Batch, tenant: TenantId, since: float) -> BatchResult:
        self.since.append(since)
        return self._engine.pass_over(batch)

    def optim_step(self, run: str, adam: AdamParams, tenant: TenantId, since: float) -> dict[str, float]:
        self.since.append(since)
        return self._engine.optim_step(run, adam)


class Worker:
    """A worker process of its own on a common ledger and depot."""

    def __init__(self, world: "World", name: str, budgets: Budgets = ROOMY) -> None:
        self.ledger = world.ledger.seen_by(name)
        self.engine = DiaryEngine()
        self.residents = Residents()
        engine: Any = self.engine
        loop: Any = AtOnce(self.engine)
        self.since = loop.since
        saving: Any = None
        clock = world.clock
        self.paging = Paging(engine, self.residents, budgets, lambda run: self.snapshots.page_out(run))
        self.work = TrainWork(engine, loop, self.ledger, world.depot, saving, self.residents, self.paging, clock)
        self.snapshots = Snapshots(
            self.residents,
            self.ledger,
            world.depot,
            state=self.engine.snapshot,
            forget=self.paging.forget,
            every_seconds=5.0,
            idle_seconds=60.0,
            clock=clock,
        )

    def claim(self, op_id: OpId) -> Held:
        held = self.ledger.claim(op_id)
        assert held is not None
        return held

    def serve(self, op_id: OpId) -> None:
        held = self.claim(op_id)
        try:
            result = self.work(held)
        except CallerError as error:
            self.ledger.failed(held, failure_of(error))
        else:
            self.ledger.done(held, result)

    @property
    def diary(self) -> Diary:
        return self.engine.diaries[RUN]


class World:
    def __init__(self, folder: str) -> None:
        self._time = [1000.0]  #: in common with copies
        self.ledger = MemoryLedger(lambda bell: None, clock=self.clock)
        self.depot = FsspecDepot(f"file://{folder}")
        self.run, self.turns = RUN, 0

    def with_run(self, name: str) -> "World":
        """The same world, where another run is born."""
        other = copy(self)
        other.run, other.turns = RunId(name), 0
        return other

    def clock(self) -> float:
        return self._time[0]

    @property
    def now(self) -> float:
        return self._time[0]

    @now.setter
    def now(self, seconds: float) -> None:
        self._time[0] = seconds

    def append(self, action: TrainAction) -> OpId:
        op_id = OpId(f"op{self.turns} of {self.run}")
        op = TrainOp(id=op_id, tenant=TenantId("t"), run=self.run, turn=self.turns, action=action)
        self.turns += 1
        return self.ledger.append(op, Bell(op=op_id, queue="q", task="t", summary=""))

    def create(self) -> OpId:
        return self.append(CreateRun(base_model="m", lora=LoraSpec(rank=4, seed=1)))

    def step(self, rate: float) -> OpId:
        return self.append(OptimStep(adam=AdamParams(learning_rate=rate)))

    def batch(self, loss: Loss = Loss.PPO, *, forward_only: bool = False) -> OpId:
        return self.append(ForwardBackward(data=(), loss=loss, forward_only=forward_only))

    def snapshot_folders(self) -> set[str]:
        return {key.split("/")[1] for key in self.depot.list("snapshots")}


def lived(world: World, worker: Worker) -> list[str]:
    """A life with everything in it that a recovery has to get right."""
    for op_id in (
        world.create(),
        world.batch(),
        world.step(1),
        world.batch(forward_only=True),
        world.batch(Loss.DRO),
        world.batch(),
        world.step(666),
        world.batch(),
    ):
        worker.serve(op_id)
    return worker.diary
