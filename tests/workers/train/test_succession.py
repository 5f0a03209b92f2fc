"""Full runs through their ops: one at a time has the seat, and none is lost on its way."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from openrl.depot.filesystem import FsspecDepot
from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import Draining, EngineBusy, FullRunTaken, FullRunWontFit
from openrl.domain.ids import OpId, RunId, TenantId
from openrl.domain.op import Bell, CreateRun, ForwardBackward, OptimStep, TrainAction, TrainOp
from openrl.domain.outcome import BatchResult, Result
from openrl.domain.run import AdamParams, LoraSpec
from openrl.ledger.memory import MemoryLedger
from workers.model.base import BaseModel
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
from workers.train.paging import Paging
from workers.train.residents import Residents
from workers.train.seat import Seat
from workers.train.seating import Seating
from workers.train.snapshots import Snapshots
from workers.train.succession import Succession
from workers.train.tiers import Budgets
from workers.train.work import TrainWork

ONE, OTHER = RunId("s:train:1"), RunId("s:train:2")
STEP = OptimStep(adam=AdamParams(learning_rate=1e-2))


class AtOnce:
    """A device loop without a thread."""

    def __init__(self, engine: TrainEngine) -> None:
        self._engine, self.calls = engine, 0

    def call(self, function: Callable[[], Any]) -> Any:
        self.calls += 1
        return function()

    def end_training(self) -> None:
        """Nothing waits here."""

    def forward_backward(self, batch: Batch, tenant: TenantId, since: float) -> BatchResult:
        (result,) = self._engine.forward_backward([batch])
        assert isinstance(result, BatchResult), result
        return result

    def optim_step(self, run: str, adam: AdamParams, tenant: TenantId, since: float) -> dict[str, float]:
        (result,) = self._engine.optim_steps([(run, adam)])
        assert isinstance(result, dict), result
        return result


class World:
    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.ledger = MemoryLedger(lambda bell: None, clock=self.clock)
        self.depot = FsspecDepot(f"file://{folder}")
        self.turns = {ONE: 0, OTHER: 0}

    def clock(self) -> float:
        return self.now

    def append(self, run: RunId, action: TrainAction) -> OpId:
        turn = self.turns[run]
        self.turns[run] += 1
        op = TrainOp(id=OpId(f"{run}/{turn}"), tenant=TenantId("t"), run=run, turn=turn, action=action)
        return self.ledger.append(op, Bell(op=op.id, queue="q", task="t", summary=""))


class Worker:
    def __init__(self, world: World, name: str, module: PreTrainedModel, *, free_bytes: int = 10**9) -> None:
        base = BaseModel(module, "tiny")
        self.world, self.ledger, self.residents = world, world.ledger.seen_by(name), Residents()
        self.engine = TrainEngine(base, seat=Seat(base, lambda: free_bytes))
        assert self.engine.seat is not None
        self.succession = Succession(self.engine.seat, self.residents, clock=world.clock)
        loop: Any = AtOnce(self.engine)
        self.loop = loop
        saving: Any = None
        self.paging = Paging(
            self.engine, self.residents, Budgets(device=1000, host=None), lambda run: self.snapshots.page_out(run)
        )
        self.work = TrainWork(
            self.engine,
            loop,
            self.ledger,
            world.depot,
            saving,
            self.residents,
            self.paging,
            world.clock,
            seating=Seating(self.engine.seat, self.succession, loop),
        )
        self.snapshots = Snapshots(
            self.residents,
            self.ledger,
            world.depot,
            state=self.engine.snapshot,
            forget=self.paging.forget,
            every_seconds=5.0,
            idle_seconds=900.0,
            clock=world.clock,
        )

    def do(self, run: RunId, action: TrainAction) -> Result:
        held = self.ledger.claim(self.world.append(run, action))
        assert held is not None
        result = self.work(held)
        self.ledger.done(held, result)
        return result

    def tick(self) -> None:
        self.succession.tick(self.snapshots)

    def weights(self, run: RunId) -> torch.Tensor:
        full = self.engine.seat and self.engine.seat.run(run)
        assert full is not None
        return full.weights.clone()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def new_worker(world: World, make_module: Callable[[str], PreTrainedModel]) -> Callable[[str], Worker]:
    return lambda name: Worker(world, name, make_module("llama"))


@pytest.fixture
def worker(new_worker: Callable[[str], Worker]) -> Worker:
    return new_worker("first")


@pytest.fixture
def passes(make: Any) -> ForwardBackward:
    data: tuple[Datum, ...] = tuple(make.datum(Loss.CROSS_ENTROPY, length) for length in (5, 7))
    return ForwardBackward(data=data, loss=Loss.CROSS_ENTROPY)


@pytest.fixture
def aside(worker: Worker) -> Iterator[Callable[..., "Future[Result]"]]:
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit
        worker.work.drain()  # whoever still waits for the seat


CREATE = CreateRun(base_model="m", lora=None)


def finish(coming: "Future[Result]", worker: Worker) -> Result:
    """With the worker's ticks in between; within ten seconds."""
    for _ in range(1000):
        worker.tick()
        if wait([coming], timeout=0.01).done:
            break
    return coming.result(0)


def test_another_worker_goes_on_with_a_full_run(
    worker: Worker, new_worker: Callable[[str], Worker], world: World, passes: ForwardBackward
) -> None:
    for action in (CREATE, passes, STEP, passes):
        worker.do(ONE, action)
    worker.snapshots.flush()
    for action in (passes, STEP, passes):
        worker.do(ONE, action)
    wanted = worker.weights(ONE)
    world.now += 60
    second = new_worker("second")
    second.do(ONE, STEP)
    worker.engine.optim_step(ONE, STEP.adam)
    assert torch.equal(second.weights(ONE), worker.weights(ONE)) and not torch.equal(second.weights(ONE), wanted)


def test_a_second_full_run_is_told_that_the_seat_is_in_use(worker: Worker) -> None:
    worker.do(ONE, CREATE)
    with pytest.raises(FullRunTaken, match="another run that trains all weights"):
        worker.do(OTHER, CREATE)
    assert worker.engine.is_full(ONE)


def test_a_run_with_an_op_at_work_uses_its_seat_however_long_that_takes(
    worker: Worker, world: World, aside: Callable[..., "Future[Result]"]
) -> None:
    worker.do(ONE, CREATE)
    world.now += 600
    with worker.residents.lock(ONE):
        coming = aside(worker.do, OTHER, CREATE)
        with pytest.raises(FullRunTaken):
            coming.result(10)
    assert worker.engine.is_full(ONE)


def test_a_run_that_nobody_uses_gives_its_seat_to_a_new_one_and_comes_back(
    worker: Worker, world: World, passes: ForwardBackward, aside: Callable[..., "Future[Result]"]
) -> None:
    for action in (CREATE, passes, STEP):
        worker.do(ONE, action)
    before = worker.weights(ONE)
    worker.tick()
    assert worker.engine.is_full(ONE), "nobody asked"
    for comes, has in ((OTHER, ONE), (ONE, OTHER)):
        world.now += 61
        coming = aside(worker.do, comes, CREATE if comes == OTHER else STEP)
        finish(coming, worker)
        assert worker.engine.is_full(comes) and not worker.engine.has(has)
    assert torch.equal(worker.weights(ONE), before), "a step without a gradient"


@pytest.mark.parametrize("from_journal", [False, True])
def test_a_run_that_was_here_before_waits_for_the_seat(
    worker: Worker,
    new_worker: Callable[[str], Worker],
    world: World,
    passes: ForwardBackward,
    aside: Callable[..., "Future[Result]"],
    from_journal: bool,
) -> None:
    first = new_worker("other") if from_journal else worker
    first.do(ONE, CREATE)
    assert from_journal or first.snapshots.hand_over(ONE)
    world.now += 60
    worker.do(OTHER, CREATE)
    coming = aside(worker.do, ONE, passes)
    worker.tick()
    with pytest.raises(TimeoutError):
        coming.result(0.5)
    assert worker.engine.is_full(OTHER), "it is in use"
    world.now += 61
    finish(coming, worker)
    assert worker.engine.is_full(ONE)


def test_who_waits_for_the_seat_is_let_go_by_a_drain(worker: Worker, aside: Callable[..., "Future[Result]"]) -> None:
    worker.do(ONE, CREATE)
    assert worker.snapshots.hand_over(ONE)
    worker.do(OTHER, CREATE)
    coming = aside(worker.do, ONE, STEP)
    worker.work.drain()
    with pytest.raises(Draining):
        coming.result(10)


def test_a_run_that_was_forgotten_meanwhile_leaves_the_seat(
    worker: Worker, world: World, aside: Callable[..., "Future[Result]"]
) -> None:
    worker.do(ONE, CREATE)
    worker.snapshots.flush()
    world.ledger.forget(ONE)
    world.now += 61
    coming = aside(worker.do, OTHER, CREATE)
    finish(coming, worker)
    assert worker.engine.is_full(OTHER)


def test_a_state_that_takes_long_to_write_is_written_more_seldom(worker: Worker, world: World) -> None:
    worker.do(ONE, CREATE)
    worker.residents.runs[ONE].write_seconds = 3.0
    world.now += 29
    worker.snapshots.tick()
    assert worker.residents.changed() == [ONE]
    world.now += 1
    worker.snapshots.tick()
    assert worker.residents.changed() == []
    worker.residents.runs[ONE].changed_at, worker.residents.runs[ONE].write_seconds = world.now, 3.0
    worker.snapshots.flush()
    assert worker.residents.changed() == [], "at the end, however long it takes"


def test_a_full_run_neither_takes_the_room_of_others_nor_gives_its_own_to_them(
    worker: Worker, world: World, passes: ForwardBackward
) -> None:
    small = RunId("s:train:3")
    world.turns[small] = 0
    worker.do(ONE, CREATE)
    for action in (CreateRun(base_model="m", lora=LoraSpec(rank=2, seed=1)), passes, STEP):
        worker.do(small, action)  # larger than the budget: it has the device to itself
    worker.do(ONE, passes)
    assert worker.engine.is_full(ONE) and worker.engine.is_paged(small)
    worker.do(OTHER, CreateRun(base_model="m", lora=LoraSpec(rank=2, seed=1)))
    assert worker.engine.is_full(ONE) and not worker.engine.has(small), "only what has an adapter made room"


def test_only_the_copy_of_the_base_model_is_made_on_the_devices_thread(
    worker: Worker, new_worker: Callable[[str], Worker], world: World, passes: ForwardBackward
) -> None:
    worker.do(ONE, CREATE)
    assert worker.loop.calls == 1
    worker.do(ONE, passes)
    worker.snapshots.flush()
    world.now += 60
    second = new_worker("second")
    second.do(ONE, passes)
    assert second.loop.calls == 1


def test_a_full_run_that_does_not_fit_where_it_comes_to_waits(
    worker: Worker, world: World, make_module: Callable[[str], PreTrainedModel]
) -> None:
    worker.do(ONE, CREATE)
    worker.snapshots.flush()
    world.now += 60
    tight = Worker(world, "tight", make_module("llama"), free_bytes=1000)
    held = tight.ledger.claim(world.append(ONE, STEP))
    assert held is not None
    with pytest.raises(EngineBusy, match="training all weights takes"):
        tight.work(held)
    assert tight.engine.seat is not None and tight.engine.seat.holder is None
    with pytest.raises(FullRunWontFit):
        tight.do(OTHER, CREATE)
