"""Runs that do not fit into memory make room for one another, and come back as they were."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from diaries import RUN, AtOnce, Diary, Worker, World

from openrl.domain.errors import (
    Draining,
    LedgerUnreachable,
)
from openrl.domain.ids import RunId
from workers.train.paging import TROUBLE_SECONDS
from workers.train.tiers import Budgets

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
