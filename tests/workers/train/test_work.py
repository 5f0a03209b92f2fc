"""Turns are applied once and in order, and a run that is lost from memory comes back as it was."""

import pytest
from diaries import RUN, Worker, World, lived

from openrl.domain.errors import (
    CallerError,
    ClaimLost,
    DatumTooLarge,
    EngineBusy,
    GradientNotFinite,
    MemoryRanOut,
    RunLost,
)
from openrl.domain.ids import DepotKey


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
