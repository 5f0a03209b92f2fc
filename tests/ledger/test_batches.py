"""Batches: let in whole or not at all, told group by group, kept and forgotten as one."""

import pytest

from openrl.domain.errors import BatchTooLarge, ClaimLost, EngineBusy, NoRoomForBatch, OpCancelled, TooManyWaiting
from openrl.domain.ids import BatchId, TenantId
from openrl.domain.op import Status
from openrl.domain.outcome import StepResult, failure_of
from openrl.domain.rollout import Dropped, Grade, Graded
from openrl.ledger.port import Brings

ANNA, B = TenantId("anna"), BatchId("b")


def graded(*rewards: float, dropped: int = 0) -> Graded:
    grades = tuple(Grade(sample=at, reward=reward, parts={"exact": reward}) for at, reward in enumerate(rewards))
    lost = tuple(Dropped(sample=9, error="GraderFailed", reason="slow") for _ in range(dropped))
    return Graded(grades=grades, dropped=lost, scored_seconds=0.0)


def score(scene, group, *rewards: float, dropped: int = 0) -> None:
    sample, reward = group
    scene.finish(sample)
    scene.ledger.done(scene.claim(reward), graded(*rewards, dropped=dropped))


def test_a_batch_keeps_room_for_all_its_ops(stage):
    scene = stage(max_waiting_per_tenant=10)
    assert scene.open_batch(4).groups == 4
    assert scene.ledger.waiting(ANNA) == 8
    scene.sample(0)
    scene.sample(1)
    with pytest.raises(TooManyWaiting, match="10 requests are waiting already"):
        scene.sample(2)
    for number in range(4):
        scene.group(number)
    assert scene.ledger.waiting(ANNA) == 10 and scene.ledger.batch(B).whole


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(stage):
    scene = stage(max_waiting_per_tenant=10)
    scene.sample(0)
    with pytest.raises(BatchTooLarge, match=r"6 of them are 12 requests, and at most 10 .* at most 5 prompts at once"):
        scene.open_batch(6)
    with pytest.raises(NoRoomForBatch, match="1 requests are waiting already and this would add 10, but at most 10"):
        scene.open_batch(5)
    assert scene.ledger.batch(B) is None and scene.ledger.waiting(ANNA) == 1


def test_opening_it_again_changes_nothing(scene):
    scene.open_batch(2)
    scene.group(0)
    again = scene.open_batch(2)
    assert (again.appended, again.note, again.whole) == (2, b"\xff", False)
    assert scene.ledger.waiting(ANNA) == 4
    scene.group(0)
    scene.group(1)
    assert scene.ledger.batch(B).whole and scene.ledger.waiting(ANNA) == 4


def test_room_that_nothing_comes_for_is_given_up_and_had_again(stage):
    scene = stage(max_waiting_per_tenant=8)
    scene.open_batch(3)
    scene.group(0)
    scene.ahead = 130.0
    scene.ledger.sweep()
    assert scene.ledger.waiting(ANNA) == 2
    scene.open_batch(3)
    assert scene.ledger.waiting(ANNA) == 6
    scene.ahead = 260.0
    scene.ledger.sweep()
    for number in range(4):
        scene.sample(number)
    with pytest.raises(NoRoomForBatch):
        scene.open_batch(3)


def test_groups_are_told_in_the_order_in_which_they_end(scene):
    scene.open_batch(3)
    groups = [scene.group(number) for number in range(3)]
    for number in (2, 0):
        score(scene, groups[number], 1.0)
    assert scene.ledger.settled_in(B, 0, 10) == [groups[2][1], groups[0][1]]
    score(scene, groups[1], 1.0)
    assert scene.ledger.settled_in(B, 2, 10) == [groups[1][1]]
    assert scene.ledger.settled_in(B, 1, 1) == [groups[0][1]]
    assert scene.ledger.settled_in(B, 3, 10) == []
    assert scene.ledger.read(groups[1][1]).label == "prompt 1"


def test_numbers_add_up_once(scene):
    scene.open_batch(3)
    groups = [scene.group(number) for number in range(3)]
    score(scene, groups[0], 0.25, 1.0)
    score(scene, groups[1], -2.5, dropped=2)
    scene.ledger.cancel(groups[2][1], OpCancelled())
    batch = scene.ledger.batch(B)
    assert batch.sums == pytest.approx(
        {
            "done": 3,
            "dropped": 2,
            "dropped:GraderFailed": 2,
            "sum": -1.25,
            "squares": 7.3125,
            "min": -2.5,
            "max": 1.0,
            "part:exact": -1.25,
            "parts:exact": 3,
        }
    )
    assert (batch.groups_settled, batch.failed) == (3, {"OpCancelled": 1})


def test_a_settlement_that_comes_twice_counts_once(scene):
    scene.open_batch(1)
    sample, reward = scene.group(0)
    scene.finish(sample)
    held = scene.claim(reward)
    scene.ledger.done(held, graded(1.0))
    scene.ledger.done(held, graded(1.0))
    assert scene.ledger.batch(B).sums["done"] == 1 and len(scene.ledger.settled_in(B, 0, 9)) == 1


def test_a_group_whose_sample_failed_is_still_scored(scene):
    """By its reward op, which says that all of it is dropped."""
    scene.open_batch(1)
    sample, reward = scene.group(0)
    scene.ledger.failed(scene.claim(sample), failure_of(EngineBusy("no")))
    assert scene.ledger.read(scene.claim(reward).op.action.of).status is Status.FAILED


def test_a_closed_batch_gives_its_room_up_and_what_is_in_it_can_be_cancelled(scene):
    scene.open_batch(3)
    groups = [scene.group(0), scene.group(1)]
    score(scene, groups[0], 1.0)
    scene.ledger.close_batch(B, OpCancelled())
    assert scene.ledger.waiting(ANNA) == 2 and scene.ledger.batch(B).cancelled
    assert scene.ledger.call_off(B) == 0
    assert scene.ledger.waiting(ANNA) == 0
    assert scene.ledger.settled_in(B, 0, 9) == [groups[0][1], groups[1][1]]
    assert scene.ledger.read(groups[0][1]).status is Status.DONE
    assert scene.open_batch(3).whole, "nothing of it comes any more"
    assert scene.ledger.waiting(ANNA) == 0


def test_a_batch_and_its_ops_are_forgotten_together_after_its_last(stage):
    scene = stage(keep_seconds=1000.0, gap_seconds=10.0)
    scene.open_batch(2)
    groups = [scene.group(0), scene.group(1)]
    score(scene, groups[0], 1.0)
    scene.ahead = 900.0
    score(scene, groups[1], 1.0)
    for scene.ahead in (1100.0, 1800.0):
        scene.ledger.sweep()
        assert scene.ledger.read(groups[0][0]).result == StepResult(metrics={"loss:sum": 1.5})
        assert scene.ledger.read(groups[0][1]).result == graded(1.0)
    scene.ahead = 2000.0
    scene.ledger.sweep()
    scene.ledger.sweep()
    assert scene.ledger.batch(B) is None
    assert [scene.ledger.read(op) for group in groups for op in group] == [None] * 4


def test_a_batch_of_which_only_a_part_came_is_forgotten_too(stage):
    scene = stage(keep_seconds=1000.0, gap_seconds=10.0)
    scene.open_batch(2)
    score(scene, scene.group(0), 1.0)
    scene.ahead = 1100.0
    scene.ledger.sweep()
    scene.ledger.sweep()
    assert scene.ledger.batch(B) is None and scene.ledger.waiting(ANNA) == 0


def test_the_ids_of_a_batchs_ops_are_kept_until_the_last_has_settled(redis_scene, client):
    redis_scene.open_batch(1)
    group = redis_scene.group(0)
    assert client.lrange("openrl:batch:b:ops", 0, -1) == [op.encode() for op in group]
    score(redis_scene, group, 1.0)
    assert not client.exists("openrl:batch:b:ops")


def test_nothing_is_left_in_redis_of_a_batch_that_expired(redis_scene, client):
    scene = redis_scene
    scene.open_batch(1)
    score(scene, scene.group(0), 1.0)
    scene.ahead = 25 * 3600.0
    scene.ledger.sweep()
    scene.ledger.sweep()
    left = {key.decode().removeprefix("openrl:") for key in client.scan_iter()}
    assert left <= {"places"}


def closed(scene, groups: int, line: str = ""):
    """A batch that was closed when all of it had come."""
    scene.open_batch(groups)
    ops = [op for number in range(groups) for op in scene.group(number, lines=(line, ""))]
    scene.bells()
    scene.ledger.close_batch(B, OpCancelled())
    return ops


def test_a_batch_is_called_off_in_parts_from_its_end(scene):
    ops = closed(scene, 120)
    held = scene.claim(ops[0])
    assert scene.ledger.call_off(B) == 140
    assert scene.ledger.waiting(ANNA) == 140 and scene.ledger.batch(B).failed == {"OpCancelled": 50}
    assert scene.ledger.read(ops[-1]).failure == failure_of(OpCancelled())
    assert scene.ledger.read(ops[139]).status is Status.WAITING
    assert (scene.ledger.call_off(B), scene.ledger.call_off(B), scene.ledger.call_off(B)) == (40, 0, 0)
    assert scene.ledger.batch(B).over and len(scene.ledger.settled_in(B, 0, 1000)) == 120
    with pytest.raises(ClaimLost):
        scene.ledger.done(held, StepResult(metrics={}))


def test_what_stands_in_line_is_called_off_without_a_bell(scene):
    scene.ledger.stay("", Brings(line="samples", slots=8))
    closed(scene, 120, line="samples")
    while scene.ledger.call_off(B):
        pass
    assert scene.bells() == [] and scene.ledger.queues()[0].waiting == 0


def test_the_sweep_calls_off_what_nobody_else_does(scene):
    ops = closed(scene, 120)
    scene.ahead = 3.0
    for _ in range(3):
        scene.ledger.sweep()
    assert scene.ledger.waiting(ANNA) == 0
    assert all(scene.ledger.read(op).failure == failure_of(OpCancelled()) for op in ops)


def test_an_op_that_comes_to_a_closed_batch_is_called_off_too(scene):
    """Its gateway had begun to append before it was closed."""
    scene.open_batch(2)
    scene.group(0)
    scene.ledger.close_batch(B, OpCancelled())
    assert scene.ledger.call_off(B) == 0
    late, _ = scene.group(1)
    scene.ahead = 1.0
    scene.ledger.sweep()
    assert scene.ledger.read(late).failure == failure_of(OpCancelled())
    assert scene.ledger.waiting(ANNA) == 0 and len(scene.ledger.settled_in(B, 0, 9)) == 2


def test_a_batch_that_is_not_closed_is_not_called_off(scene):
    scene.open_batch(1)
    sample, _ = scene.group(0)
    assert scene.ledger.call_off(B) == 0 == scene.ledger.call_off(BatchId("unknown"))
    scene.ledger.sweep()
    scene.finish(sample)


def test_a_single_rollout_passes_another_tenants_flood_at_both_lines(scene):
    lines = ("samples", "rewards")
    for line in lines:
        scene.for_worker(line).stay("", Brings(line=line, slots=8))
    scene.open_batch(300)
    flood = [scene.group(number, lines=lines) for number in range(300)]
    for sample, _ in flood[:8]:
        scene.finish(sample)
    scene.bells()
    scene.open_batch(1, "single", "bert")
    sample, reward = scene.group(0, "single", "bert", lines=lines)
    assert scene.bells() == [sample]
    scene.finish(sample)
    assert reward in scene.bells(), "though some of the flood's rewards stand"
    assert scene.ledger.claim(flood[7][1]) is None


def test_batches_of_a_tenant_take_turns(scene):
    scene.ledger.stay("", Brings(line="samples", slots=2))
    for name in ("b", "c"):
        scene.open_batch(3, name)
    first = [scene.group(number, "b", lines=("samples", ""))[0] for number in range(3)]
    second = [scene.group(number, "c", lines=("samples", ""))[0] for number in range(3)]
    order = []
    for _ in range(6):
        (rung,) = [op for op in scene.bells() if op.endswith("sample")]
        order.append(rung)
        scene.finish(rung)
    assert order == [first[0], first[1], second[0], first[2], second[1], second[2]]
