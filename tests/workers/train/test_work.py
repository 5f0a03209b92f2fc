"""Turns are applied once and in order, and a run that is lost from memory comes back as it was.

The engine here remembers a run as the list of what was done to it, so that two states can be compared exactly.
"""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any

import pytest

from openrl.depot.filesystem import FsspecDepot
from openrl.domain.datum import Loss
from openrl.domain.errors import (
    CallerError,
    ClaimLost,
    DatumTooLarge,
    Draining,
    EngineBusy,
    FieldInvalid,
    GradientNotFinite,
    LedgerUnreachable,
    MemoryRanOut,
    RunLost,
)
from openrl.domain.ids import DepotKey, OpId, RunId, TenantId
from openrl.domain.op import Bell, CreateRun, ForwardBackward, OptimStep, TrainAction, TrainOp
from openrl.domain.outcome import BatchResult, failure_of
from openrl.domain.run import AdamParams, LoraSpec
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Held
from workers.train.batch import Batch
from workers.train.handover import HandOver
from workers.train.paging import TROUBLE_SECONDS, Paging
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


@pytest.fixture
def world(tmp_path: Any) -> World:
    return World(str(tmp_path))


@pytest.fixture
def first(world: World) -> Worker:
    return Worker(world, "first")


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


def test_a_turn_that_comes_twice_is_applied_once(world: World, first: Worker) -> None:
    first.serve(world.create())
    held = first.claim(world.step(1))
    assert first.work(held) == first.work(held)
    assert first.engine.calls == 2


def test_a_failed_turn_that_comes_twice_fails_twice_and_is_applied_once(world: World, first: Worker) -> None:
    first.serve(world.create())
    held = first.claim(world.step(666))
    for _ in range(2):
        with pytest.raises(GradientNotFinite):
            first.work(held)
    assert first.engine.calls == 2


def test_a_thread_that_slept_through_its_turn_applies_nothing(world: World, first: Worker) -> None:
    first.serve(world.create())
    op_id = world.step(1)
    sleeper = first.claim(op_id)
    world.now += 60
    first.ledger.sweep()
    first.serve(op_id)
    first.serve(world.step(2))
    with pytest.raises(ClaimLost):
        first.work(sleeper)
    assert first.diary == ["rank 4", "step 1", "step 2"]


def test_the_device_is_told_since_when_an_op_waits(world: World, first: Worker) -> None:
    first.serve(world.create())
    op_id = world.batch()
    world.now += 3.0
    first.serve(op_id)
    op_id = world.step(1)
    world.now += 2.0
    first.serve(op_id)
    assert first.since == [world.now - 5.0, world.now - 2.0]


def test_another_worker_recovers_from_the_journal_alone(world: World, first: Worker) -> None:
    diary = list(lived(world, first))
    world.now += 60
    second = Worker(world, "second")
    second.serve(world.step(2))
    assert second.diary == [*diary, "step 2"]


@pytest.mark.parametrize("error", [DatumTooLarge(0, 9, 2, 1), MemoryRanOut(0, 9, 2)])
def test_a_turn_that_does_not_fit_when_it_is_done_again_is_waited_for(
    world: World, first: Worker, error: CallerError
) -> None:
    diary = list(lived(world, first))
    world.now += 60
    second = Worker(world, "second")
    second.engine.full = error
    held = second.claim(world.step(2))
    with pytest.raises(EngineBusy):
        second.work(held)
    second.engine.full = None
    second.work(held)
    assert second.diary == [*diary, "step 2"]


def test_another_worker_recovers_from_a_snapshot_and_what_came_since(world: World, first: Worker) -> None:
    lived(world, first)
    first.snapshots.flush()
    first.serve(world.step(3))
    diary = list(first.diary)
    world.now += 60
    second = Worker(world, "second")
    second.serve(world.step(2))
    assert second.diary == [*diary, "step 2"]
    assert second.engine.calls == 2, "only what the snapshot lacks was done again"


def test_a_worker_that_lost_its_lease_and_got_it_back_does_not_trust_its_memory(world: World, first: Worker) -> None:
    first.serve(world.create())
    first.serve(world.step(1))
    world.now += 60
    second = Worker(world, "second")
    second.serve(world.step(2))
    world.now += 60
    first.serve(world.step(3))
    assert first.diary == ["rank 4", "step 1", "step 2", "step 3"]


def test_a_snapshot_is_written_when_it_is_due_and_replaces_the_one_before(world: World, first: Worker) -> None:
    first.serve(world.create())
    first.snapshots.tick()
    assert world.snapshot_folders() == set()
    world.now += 5
    first.snapshots.tick()
    (before,) = world.snapshot_folders()
    world.now += 50
    first.snapshots.tick()
    assert world.snapshot_folders() == {before}, "nothing changed since"
    first.serve(world.step(1))
    world.now += 5
    first.snapshots.tick()
    (after,) = world.snapshot_folders()
    assert after != before
    assert first.ledger.journal(RUN) == []


def test_a_turn_in_a_snapshot_is_never_applied_again(world: World, first: Worker) -> None:
    """The worker dies after the state was written and before the turn's end was."""
    first.serve(world.create())
    op_id = world.step(1)
    first.work(first.claim(op_id))
    world.now += 5
    first.snapshots.tick()
    assert world.snapshot_folders() == set(), "refused, because the turn has not ended"
    world.now += 60
    first.ledger.sweep()
    second = Worker(world, "second")
    second.serve(op_id)
    assert second.diary == ["rank 4", "step 1"]


def test_a_zombies_snapshot_is_refused_and_its_memory_dropped(world: World, first: Worker) -> None:
    first.serve(world.create())
    world.now += 60
    second = Worker(world, "second")
    second.serve(world.step(1))
    first.snapshots.tick()
    assert not first.engine.has(RUN)
    assert world.snapshot_folders() == set()


def test_an_idle_run_leaves_memory_and_comes_back_with_its_next_turn(world: World, first: Worker) -> None:
    diary = list(lived(world, first))
    world.now += 61
    first.snapshots.tick()
    assert not first.engine.has(RUN)
    first.serve(world.step(4))
    assert first.diary == [*diary, "step 4"]


def test_a_draining_worker_takes_nothing_new_and_hands_its_runs_over(world: World, first: Worker) -> None:
    first.serve(world.create())
    op_id = world.step(1)
    held = first.claim(op_id)
    first.work.drain()
    with pytest.raises(Draining):
        first.work(held)
    first.ledger.give_back(held, Draining(), counts=False)
    first.snapshots.flush()
    first.ledger.leave()
    second = Worker(world, "second")
    second.serve(op_id)
    assert second.diary == ["rank 4", "step 1"]


def test_a_run_that_was_never_created_here_is_lost_and_says_so(world: World, first: Worker) -> None:
    world.ledger.skip(RUN, 0)
    world.turns = 1
    held = first.claim(world.step(1))
    with pytest.raises(RunLost):
        first.work(held)


def test_a_run_whose_snapshot_is_gone_is_lost_and_says_so(world: World, first: Worker) -> None:
    lived(world, first)
    assert first.snapshots.page_out(RUN)
    for folder in world.snapshot_folders():
        world.depot.delete_folder(DepotKey(f"snapshots/{folder}"))
    with pytest.raises(RunLost):
        first.work(first.claim(world.step(2)))


def test_a_run_that_is_handed_over_goes_on_at_another_worker(world: World, first: Worker) -> None:
    diary = list(lived(world, first))
    assert first.snapshots.hand_over(RUN)
    assert not first.engine.has(RUN)
    second = Worker(world, "second")
    second.serve(world.step(4))
    assert second.diary == [*diary, "step 4"]
    assert second.engine.calls == 1, "its snapshot was whole"
    first.snapshots.tick()


def test_a_run_with_an_op_at_work_is_not_handed_over(world: World, first: Worker) -> None:
    first.serve(world.create())
    op_id = world.step(1)
    held = first.claim(op_id)
    assert not first.snapshots.hand_over(RUN)
    first.ledger.done(held, first.work(held))
    assert first.diary == ["rank 4", "step 1"]
    assert first.snapshots.hand_over(RUN)


def test_a_worker_that_goes_away_gives_each_run_up_as_soon_as_no_op_of_it_is_at_work(
    world: World, first: Worker
) -> None:
    first.serve(world.create())
    held = first.claim(world.step(1))
    leaving = HandOver(first.residents, first.snapshots)
    leaving.begin()
    time.sleep(0.1)
    assert first.engine.has(RUN)
    first.ledger.done(held, first.work(held))
    until = time.monotonic() + 5
    while first.engine.has(RUN) and time.monotonic() < until:
        time.sleep(0.01)
    assert not first.engine.has(RUN)
    leaving.finish()
    second = Worker(world, "second")
    second.serve(world.step(2))
    assert second.diary == ["rank 4", "step 1", "step 2"]
    assert second.engine.calls == 1, "its snapshot was whole"


def test_giving_runs_up_ends_when_the_worker_does(world: World, first: Worker) -> None:
    first.serve(world.create())
    first.claim(world.step(1))
    leaving = HandOver(first.residents, first.snapshots)
    leaving.begin()
    leaving.finish()
    assert first.engine.has(RUN)


def test_a_run_that_was_handed_over_and_comes_back_is_recovered(world: World, first: Worker) -> None:
    first.serve(world.create())
    assert first.snapshots.hand_over(RUN)
    second = Worker(world, "second")
    second.serve(world.step(1))
    assert second.snapshots.hand_over(RUN)
    first.serve(world.step(2))
    assert first.diary == ["rank 4", "step 1", "step 2"]


def test_a_run_that_left_memory_may_go_on_anywhere(world: World, first: Worker) -> None:
    diary = list(lived(world, first))
    first.snapshots.tick()
    world.now += 61
    first.snapshots.tick()
    second = Worker(world, "second")
    first.ledger.stay()
    second.serve(world.step(4))
    assert second.diary == [*diary, "step 4"]


# ------------------------------------------------------------------------------------------------ room
CRAMPED = Budgets(device=8, host=None)  #: two runs of rank 4


def test_runs_that_do_not_fit_go_to_the_depot_and_come_back_as_they_were(world: World) -> None:
    worker = Worker(world, "small", CRAMPED)
    runs = [world.with_run(f"run{at}") for at in range(5)]
    for each in runs:
        worker.serve(each.create())
    for rate in (1, 2, 3):
        for each in runs:
            worker.serve(each.step(rate))
            assert len(worker.engine.diaries) <= 2
            assert worker.engine.diaries[each.run] == ["rank 4", *(f"step {done}" for done in range(1, rate + 1))]
    assert worker.engine.calls == 5 + 15, "everything was written before it left: nothing was done again"


def test_a_run_that_left_to_make_room_may_go_on_anywhere(world: World) -> None:
    worker = Worker(world, "small", CRAMPED)
    runs = [world.with_run(f"run{at}") for at in range(3)]
    for each in runs:
        worker.serve(each.create())
    worker.ledger.stay()
    second = Worker(world, "second")
    second.serve(runs[0].step(1))
    assert second.engine.diaries[runs[0].run] == ["rank 4", "step 1"]
    assert second.ledger.claim(runs[2].step(1)) is None, "this one is in the first one's memory"


def test_a_run_that_moved_to_main_memory_keeps_its_lease_and_comes_back_without_the_depot(world: World) -> None:
    worker = Worker(world, "small", Budgets(device=8, host=100))
    runs = [world.with_run(f"run{at}") for at in range(4)]
    for each in runs:
        worker.serve(each.create())
    assert worker.engine.in_host == {"run0", "run1"}
    for rate in (1, 2):
        for each in runs:
            worker.serve(each.step(rate))
    assert world.snapshot_folders() == set()
    assert [worker.engine.diaries[each.run] for each in runs] == [["rank 4", "step 1", "step 2"]] * 4
    assert all(resident.lease.epoch == 1 for resident in worker.residents.runs.values())


def test_a_run_with_an_op_held_does_not_leave(world: World) -> None:
    worker = Worker(world, "small", CRAMPED)
    first, second, third = (world.with_run(f"run{at}") for at in range(3))
    worker.serve(first.create())
    worker.serve(second.create())
    held = worker.claim(first.step(1))
    worker.serve(third.create())
    assert first.run in worker.engine.diaries, "although it was used longest ago"
    assert second.run not in worker.engine.diaries
    worker.ledger.done(held, worker.work(held))


def test_while_the_depot_takes_nothing_it_is_not_asked_all_the_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(world, "small", CRAMPED)
    first, second, third = (world.with_run(f"run{at}") for at in range(3))
    worker.serve(first.create())
    worker.serve(second.create())
    put, waits = world.depot.put_folder, list[float]()

    def full(*_: object) -> int:
        monkeypatch.setattr(world.depot, "put_folder", put)
        raise OSError("no space left on device")

    monkeypatch.setattr(world.depot, "put_folder", full)
    monkeypatch.setattr(worker.paging._draining, "wait", waits.append)
    worker.serve(third.create())
    assert len(waits) == 2 and waits[0] == 0.0 < waits[1] <= TROUBLE_SECONDS


def test_a_run_that_another_worker_took_over_makes_room(world: World) -> None:
    """This worker slept; what it has of the run is whole in a snapshot, so it writes none that could be refused."""
    worker = Worker(world, "small", CRAMPED)
    first, second, third = (world.with_run(f"run{at}") for at in range(3))
    worker.serve(first.create())
    worker.snapshots.flush()
    world.now += 60
    other = Worker(world, "other")
    other.serve(first.step(1))
    worker.serve(second.create())
    worker.serve(third.create())
    assert first.run not in worker.engine.diaries
    other.serve(first.step(2))
    assert other.engine.diaries[first.run] == ["rank 4", "step 1", "step 2"]


def test_while_a_snapshot_is_on_its_way_no_other_is_begun_and_the_run_stays(
    world: World, first: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.serve(world.create())
    put_folder, under_way, go_on = world.depot.put_folder, threading.Event(), threading.Event()

    def slowly(key: str, files: Any) -> int:
        under_way.set()
        assert go_on.wait(5)
        return put_folder(key, files)

    monkeypatch.setattr(world.depot, "put_folder", slowly)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(first.snapshots.write, RUN)
        assert under_way.wait(5)
        assert not first.snapshots.page_out(RUN)
        first.serve(world.step(1))
        first.snapshots.write(RUN)
        assert not first.snapshots.page_out(RUN)
        go_on.set()
        writing.result(5)
    assert [op.turn for op in first.ledger.journal(RUN)] == [1]
    assert first.snapshots.page_out(RUN)
    first.serve(world.step(2))
    assert first.diary == ["rank 4", "step 1", "step 2"]


def test_a_worker_that_drains_makes_nobody_wait_for_room(world: World) -> None:
    worker = Worker(world, "small", CRAMPED)
    held = worker.claim(world.create())
    with ThreadPoolExecutor(1) as pool, worker.paging.at_work(RunId("large")):
        worker.paging.enter(RunId("large"), Diary(["rank 8"]))
        waiting = pool.submit(worker.work, held)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        worker.work.drain()
        with pytest.raises(Draining):
            waiting.result(5)


def test_loading_happens_beside_the_passes(world: World, first: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run comes from the depot without the device's thread."""
    first.serve(world.create())
    first.snapshots.flush()
    first.snapshots.hand_over(RUN)
    monkeypatch.setattr(AtOnce, "call", lambda *_: pytest.fail("the device's thread was asked"))
    first.serve(world.batch())
    assert first.diary == ["rank 4", "pass"]


def test_what_a_failed_recovery_left_in_memory_makes_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(world, "small", CRAMPED)
    first, second, third = (world.with_run(f"run{at}") for at in range(3))

    def unreachable(run: RunId) -> None:
        raise LedgerUnreachable("gone")

    worker.serve(first.create())
    worker.snapshots.hand_over(first.run)
    with monkeypatch.context() as broken:
        broken.setattr(worker.ledger, "journal", unreachable)
        held = worker.claim(first.step(2))
        with pytest.raises(LedgerUnreachable):
            worker.work(held)
    assert first.run in worker.engine.diaries
    worker.ledger.give_back(held)
    for each in (second, third):
        worker.serve(each.create())
    assert first.run not in worker.engine.diaries
