"""A run has one writer: leases, the journal of what was applied, and snapshots that shorten it."""

import pytest

from openrl.domain.errors import LeaseLost, OpCancelled, RunLost, TurnUnsettled
from openrl.domain.ids import DepotKey, RunId
from openrl.domain.op import SavePolicy, Status, queue_of
from openrl.domain.outcome import StepResult, failure_of
from openrl.ledger.keys import body_key

RUN = RunId("r")
RESULT = StepResult(metrics={})
FIRST, SECOND = DepotKey("snapshots/1"), DepotKey("snapshots/2")


def apply(ledger, op_id):
    held = ledger.claim(op_id)
    ledger.done(held, RESULT)
    return held.lease


def test_the_first_claim_of_a_run_takes_its_lease(scene):
    a = scene.for_worker("a")
    lease = apply(a, scene.turn(0))
    assert (lease.run, lease.epoch, lease.snapshot, lease.snapshot_turn) == (RUN, 1, None, -1)
    assert apply(a, scene.turn(1)).epoch == 1
    assert scene.claim(scene.sample()).lease is None


def test_a_leased_run_rings_at_its_holder_alone(scene):
    a, b = scene.for_worker("a"), scene.for_worker("b")
    apply(a, scene.turn(0))
    op_id = scene.turn(1)
    assert scene.queues == ["q", queue_of("a")]
    assert b.claim(op_id) is None, "its run is another's"
    assert scene.queues == ["q", queue_of("a"), queue_of("a")]
    assert a.claim(op_id) is not None


def test_a_lease_lapses_with_its_holder_and_the_next_one_fences_it_off(scene):
    a, b = scene.for_worker("a"), scene.for_worker("b")
    old = apply(a, scene.turn(0))
    op_id = scene.turn(1)
    for _ in range(5):
        scene.ahead += 10
        a.stay()
    assert b.claim(op_id) is None
    scene.ahead += 20
    lease = apply(b, op_id)
    assert lease.epoch == old.epoch + 1
    with pytest.raises(LeaseLost):
        a.snapshotted(old, 0, FIRST)
    assert a.claim(scene.turn(2)) is None


def test_releasing_hands_over_at_once(scene):
    a, b = scene.for_worker("a"), scene.for_worker("b")
    apply(a, scene.turn(0))
    op_id = scene.turn(1)
    scene.bells()
    scene.queues.clear()
    a.leave()
    assert (scene.bells(), scene.queues) == ([op_id], ["q"])
    assert apply(b, op_id).epoch == 2


def test_the_journal_tells_what_was_applied_in_order_with_its_bodies(stage):
    scene = stage(inline_bytes=1)
    a = scene.for_worker("a")
    ids = [scene.turn(turn) for turn in range(3)]
    apply(a, ids[0])
    a.failed(a.claim(ids[1]), failure_of(RunLost("r")))
    a.cancel(ids[2], OpCancelled())
    journal = a.journal(RUN)
    assert [(op.id, op.turn, op.action.kind) for op in journal] == [
        (ids[0], 0, "optim_step"),
        (ids[1], 1, "optim_step"),
    ], "a cancelled op was never applied; one that failed at work was"


def test_what_a_recovery_need_not_do_again_is_not_kept(stage):
    scene = stage(inline_bytes=1)
    a = scene.for_worker("a")
    first, save, bug = scene.turn(0), scene.turn(1, SavePolicy(target=DepotKey("policies/1"))), scene.turn(2)
    apply(a, first)
    apply(a, save)
    a.failed(a.claim(bug), failure_of(MemoryError()), applied=False)
    assert [op.id for op in a.journal(RUN)] == [first]
    assert not [key for key in scene.shelf if key in (body_key(save), body_key(bug))]


def test_a_snapshot_shortens_the_journal_and_names_the_one_it_replaces(stage):
    scene = stage(inline_bytes=1)
    a = scene.for_worker("a")
    for turn in range(4):
        lease = apply(a, scene.turn(turn))
    assert a.snapshotted(lease, 1, FIRST) is None
    assert [op.turn for op in a.journal(RUN)] == [2, 3]
    assert a.snapshotted(lease, 1, FIRST) is None, "told again, it stays"
    assert a.snapshotted(lease, 3, SECOND) == FIRST
    assert a.journal(RUN) == []
    assert not [key for key in scene.shelf if key.endswith("body")]
    held = a.claim(scene.turn(4))
    assert (held.lease.snapshot, held.lease.snapshot_turn) == (SECOND, 3)


def test_a_snapshot_of_a_turn_that_has_not_ended_is_refused(scene):
    a = scene.for_worker("a")
    apply(a, scene.turn(0))
    held = a.claim(scene.turn(1))
    with pytest.raises(TurnUnsettled):
        a.snapshotted(held.lease, 1, FIRST)
    a.done(held, RESULT)
    a.snapshotted(held.lease, 1, FIRST)


def test_what_the_journal_needs_is_kept_beyond_its_time(scene):
    a = scene.for_worker("a")
    op_id = scene.turn(0)
    lease = apply(a, op_id)
    scene.ahead += 25 * 3600
    assert a.sweep().forgotten == 0
    assert [op.id for op in a.journal(RUN)] == [op_id]
    assert a.read(op_id).status is Status.DONE
    a.snapshotted(lease, 0, FIRST)
    scene.ahead += 25 * 3600
    assert a.sweep().forgotten == 1
    assert a.read(op_id) is None


def test_after_its_holder_died_an_op_that_it_held_is_anybodys(scene):
    a, b = scene.for_worker("a"), scene.for_worker("b")
    op_id = scene.turn(0)
    assert a.claim(op_id) is not None
    scene.ahead += 20
    scene.queues.clear()
    b.sweep()
    assert scene.queues == ["q"]
    assert b.claim(op_id).lease.epoch == 2


def test_a_forgotten_run_leaves_no_lease_no_journal_and_no_bytes(stage):
    scene = stage(inline_bytes=1)
    a = scene.for_worker("a")
    lease = apply(a, scene.turn(0))
    a.snapshotted(lease, 0, FIRST)
    apply(a, scene.turn(1))
    last = scene.turn(2)
    with pytest.raises(TurnUnsettled):
        a.forget(RUN)
    apply(a, last)
    assert a.forget(RUN) == FIRST
    assert a.forget(RUN) is None
    assert a.journal(RUN) == []
    assert not [key for key in scene.shelf if key.endswith("body")]
    with pytest.raises(LeaseLost):
        a.snapshotted(lease, 2, SECOND)
    assert a.claim(scene.turn(3)).lease.snapshot is None


# ------------------------------------------------------------------------------------------------ several workers
def two_workers(scene):
    workers = scene.for_worker("a"), scene.for_worker("b")
    for worker in workers:
        worker.stay("q")
    return workers


def test_a_fresh_run_is_left_to_a_worker_with_fewer(scene):
    a, b = two_workers(scene)
    apply(a, scene.turn(0))
    op_id = scene.turn(0, run="s")
    scene.queues.clear()
    assert a.claim(op_id) is None
    assert scene.queues == [queue_of("b")]
    assert apply(b, op_id).epoch == 1
    assert apply(a, scene.turn(0, run="t")) is not None, "both have as many"
    assert (a.loads().mine, a.loads().others) == (2, (1,))


def test_runs_that_come_all_at_once_are_spread_evenly(scene):
    workers = dict(zip("ab", two_workers(scene), strict=True))
    queue_by_op = [(scene.turn(0, run=f"r{number}"), "a") for number in range(7)]
    for op_id, worker in queue_by_op:
        scene.queues.clear()
        if workers[worker].claim(op_id) is None:
            queue_by_op.append((op_id, scene.queues[0].removeprefix("worker.")))
    loads = workers["a"].loads()
    assert sorted((loads.mine, *loads.others)) == [3, 4]


def test_a_run_is_left_neither_to_the_dead_nor_to_the_leaving_nor_to_another_models_worker(scene):
    a, _ = two_workers(scene)
    scene.for_worker("another model's").stay("q2")
    scene.for_worker("a reward worker").stay()
    scene.ahead += 20
    a.stay("q")
    leaving = scene.for_worker("leaving")
    leaving.stay("q")
    leaving.stay()
    apply(a, scene.turn(0))
    assert a.claim(scene.turn(0, run="s")) is not None


def test_a_run_that_had_no_op_for_long_is_no_load(scene):
    a, b = two_workers(scene)
    apply(a, scene.turn(0))
    scene.ahead += 50
    a.stay("q")
    b.stay("q")
    apply(a, scene.turn(1))
    scene.ahead += 50
    a.stay("q")
    b.stay("q")
    assert a.loads().mine == 1
    scene.ahead += 11
    a.stay("q")
    b.stay("q")
    assert a.loads().mine == 0
    assert a.claim(scene.turn(0, run="s")) is not None
    assert a.claim(scene.turn(2)) is not None
    assert a.loads().mine == 2


def test_a_run_that_a_freer_worker_did_not_take_is_taken_by_whoever_hears_of_it_again(scene):
    a, b = two_workers(scene)
    apply(a, scene.turn(0))
    op_id = scene.turn(0, run="s")
    assert a.claim(op_id) is None
    scene.ahead += 6
    b.sweep()
    assert a.claim(op_id) is not None


def test_a_single_run_is_released_while_its_holder_lives_on(scene):
    a, b = two_workers(scene)
    old = apply(a, scene.turn(0))
    apply(b, scene.turn(0, run="s"))
    op_id = scene.turn(1)
    scene.queues.clear()
    assert a.release([RUN, RunId("s")]) == {RUN}
    assert scene.queues == ["q"]
    assert (a.loads().mine, a.loads().others) == (0, (1,))
    assert b.claim(op_id) is None, "the other has fewer by now"
    assert apply(a, op_id).epoch == old.epoch + 1


def test_a_run_of_which_an_op_is_held_is_not_released(scene):
    a = scene.for_worker("a")
    held = a.claim(scene.turn(0))
    assert a.release([RUN]) == set()
    a.done(held, RESULT)
    assert a.release([RUN]) == {RUN}


def test_what_waits_for_a_dead_worker_is_rung_as_soon_as_its_lease_has_lapsed(scene):
    """Not when its bell is due to be rung again, whose pauses grow."""
    a, b = scene.for_worker("a"), scene.for_worker("b")
    apply(a, scene.turn(0))
    op_id = scene.turn(1)
    scene.ahead += 6
    b.sweep()
    scene.ahead += 9.5
    scene.queues.clear()
    b.sweep()
    assert scene.queues == ["q"]
    assert b.claim(op_id) is not None


def test_a_worker_that_was_thought_dead_goes_on(scene):
    a, b = two_workers(scene)
    old = apply(a, scene.turn(0))
    scene.ahead += 20
    b.sweep()
    a.stay("q")
    assert a.loads().mine == 0
    assert apply(a, scene.turn(1)).epoch == old.epoch + 1
    assert a.loads().mine == 1
