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
    a.release([RUN, RunId("another")])
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
