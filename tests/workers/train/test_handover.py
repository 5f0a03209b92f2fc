"""Runs leave a worker: idle, handed over to another, or because the worker goes."""

import time

import pytest
from diaries import RUN, Worker, World, lived

from openrl.domain.errors import (
    Draining,
)
from workers.train.handover import HandOver


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
