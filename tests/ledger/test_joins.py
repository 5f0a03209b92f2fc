"""Ops that wait for others: when they come free, and what becomes of them when one of those fails."""

import pytest

from openrl.domain.errors import FieldInvalid, MemberUnknown, OpCancelled, TurnPassed
from openrl.domain.ids import OpId, RunId, TenantId
from openrl.domain.op import OptimStep, Status, TrainOp
from openrl.domain.outcome import Category, StepResult, failure_of
from openrl.domain.rollout import MOST_MEMBERS, After
from openrl.domain.run import AdamParams
from openrl.ledger.port import Brings

RESULT = StepResult(metrics={})
LINE = "rewards"


def test_the_last_member_to_settle_rings_the_joined_op_once(scene):
    first, last = scene.sample(0), scene.sample(1)
    joined = scene.joined(first, last)
    assert scene.bells() == [first, last] and scene.ledger.claim(joined) is None
    scene.finish(last)
    assert scene.bells() == [] and scene.ledger.claim(joined) is None, "one has not settled"
    held = scene.claim(first)
    scene.ledger.done(held, RESULT)
    scene.ledger.done(held, RESULT)  # its first answer was lost
    assert scene.bells() == [joined]
    assert scene.claim(joined).op.after == After(ops=(first, last))


def test_members_that_have_settled_hold_nothing_back(scene):
    done = scene.sample(0)
    scene.finish(done)
    scene.bells()
    joined = scene.joined(done, done)
    assert scene.bells() == [joined]


def test_a_member_named_twice_counts_once(scene):
    member = scene.sample(0)
    joined = scene.joined(member, member)
    scene.finish(member)
    assert scene.bells() == [member, joined]


def test_a_failed_member_fails_the_op_and_those_that_wait_for_it_in_turn(scene):
    member = scene.sample(0)
    joined = scene.joined(member, scene.sample(1))
    last = scene.joined(joined)
    scene.bells()
    scene.ledger.failed(scene.claim(member), failure_of(FieldInvalid("prompt", "is bad")))
    failure = scene.ledger.read(joined).failure
    assert (failure.error, failure.category) == ("MemberFailed", Category.USER)
    assert failure.message == f"request {member}, which this one waited for, failed: prompt: is bad"
    assert scene.ledger.read(last).failure.message == f"request {joined}, which this one waited for, failed: " + (
        failure.message
    )
    assert scene.bells() == [] and scene.ledger.waiting(TenantId("anna")) == 1


def test_a_member_that_had_failed_before_fails_the_op_as_it_comes(scene):
    member = scene.sample(0)
    scene.ledger.failed(scene.claim(member), failure_of(RuntimeError("a bug")))
    scene.bells()
    joined = scene.joined(member, scene.sample(1))
    record = scene.ledger.read(joined)
    assert (record.status, record.failure.category) == (Status.FAILED, Category.SERVER)
    assert joined not in scene.bells() and scene.ledger.claim(joined) is None


def test_an_op_may_run_whatever_became_of_its_members(scene):
    bad, good = scene.sample(0), scene.sample(1)
    joined = scene.joined(bad, good, on_failure="run")
    scene.ledger.failed(scene.claim(bad), failure_of(RuntimeError("a bug")))
    assert scene.ledger.claim(joined) is None
    scene.finish(good)
    members = scene.claim(joined).op.after.ops
    assert [scene.ledger.read(member).status for member in members] == [Status.FAILED, Status.DONE]


def test_a_judge_fails_with_its_samples_and_the_reward_of_both_runs_once(scene):
    sample = scene.sample(0)
    judge = scene.joined(sample)
    reward = scene.joined(sample, judge, on_failure="run")
    scene.bells()
    scene.ledger.failed(scene.claim(sample), failure_of(RuntimeError("a bug")))
    assert scene.ledger.read(judge).failure.error == "MemberFailed"
    assert scene.bells() == [reward]
    members = scene.claim(reward).op.after.ops
    assert [scene.ledger.read(member).status for member in members] == [Status.FAILED, Status.FAILED]


def test_a_judge_takes_no_slot_from_the_samples_that_it_waits_for(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=2))
    samples = [scene.reward(line=LINE) for _ in range(3)]
    judges = [scene.joined(sample, line=LINE) for sample in samples]
    rewards = [scene.joined(*pair, on_failure="run", line=LINE) for pair in zip(samples, judges, strict=True)]
    settled = []
    while bells := scene.bells():
        for op_id in bells:
            assert scene.ledger.read(op_id).status is Status.WAITING
            scene.finish(op_id)
            settled.append(op_id)
    assert sorted(settled) == sorted([*samples, *judges, *rewards])
    for trio in zip(samples, judges, rewards, strict=True):
        assert sorted(trio, key=settled.index) == list(trio)


def test_unknown_forgotten_and_other_tenants_members_are_refused_alike(stage):
    scene = stage(keep_seconds=100.0)
    gone, foreign = scene.sample(0), scene.sample(0, tenant="bert", sampler="b")
    scene.finish(gone)
    scene.ahead = 200.0
    scene.ledger.sweep()
    for member in (OpId("never"), gone, foreign):
        with pytest.raises(MemberUnknown) as caught:
            scene.joined(member)
        assert caught.value.args == (member,)
    assert scene.ledger.waiting(TenantId("anna")) == 0


def test_members_are_bounded(scene):
    with pytest.raises(FieldInvalid, match="after: names 10001 requests"):
        scene.joined(*(OpId(str(number)) for number in range(MOST_MEMBERS + 1)))


def test_many_members_are_waited_for(scene):
    members = [scene.sample(number) for number in range(300)]
    joined = scene.joined(*members)
    scene.bells()
    for member in members:
        scene.finish(member)
    assert scene.bells() == [joined]


def test_cancelling_a_member_fails_the_op(scene):
    member = scene.sample(0)
    joined = scene.joined(member)
    scene.ledger.cancel(member, OpCancelled())
    assert scene.ledger.read(joined).failure.error == "MemberFailed"


def test_a_cancelled_op_is_not_rung_when_its_members_settle(scene):
    member = scene.sample(0)
    joined = scene.joined(member, line=LINE)
    scene.ledger.cancel(joined, OpCancelled())
    scene.bells()
    scene.finish(member)
    assert scene.bells() == [] and scene.ledger.read(joined).failure.error == "OpCancelled"


def test_a_joined_op_comes_to_its_line_when_it_is_free(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=2))
    members = [scene.sample(number) for number in range(3)]
    joined = [scene.joined(member, line=LINE) for member in members]
    scene.bells()
    assert scene.ledger.place(joined[0]) is None, "it stands in no line yet"
    for member in members:
        scene.finish(member)
    assert scene.bells() == joined[:1], "the tenant has half of the slots"
    assert scene.ledger.place(joined[2]).ahead == 1
    scene.finish(joined[0])
    assert scene.bells() == joined[1:2]


def test_a_members_result_stays_readable_until_the_op_has_ended(stage):
    scene = stage(keep_seconds=100.0)
    member, other = scene.sample(0), scene.sample(1)
    joined = scene.joined(member, other)
    scene.finish(member)
    for scene.ahead in (150.0, 300.0):
        scene.ledger.sweep()
        assert scene.ledger.read(member).result is not None
    scene.finish(other)
    scene.finish(joined)
    scene.ahead = 450.0
    scene.ledger.sweep()
    assert scene.ledger.read(member) is None
    scene.ahead = 600.0
    scene.ledger.sweep()
    assert scene.ledger.read(joined) is None


def test_a_turn_waits_for_its_members_and_those_behind_it_for_the_turn(scene):
    member = scene.sample(0)
    first = OpId("first")
    action = OptimStep(adam=AdamParams())
    scene.append(
        TrainOp(id=first, tenant=TenantId("anna"), run=RunId("r"), turn=0, action=action, after=After(ops=(member,)))
    )
    second = scene.turn(1)
    assert scene.bells() == [member] and scene.ledger.claim(first) is None
    scene.finish(member)
    assert scene.bells() == [first]
    scene.finish(first)
    assert scene.bells() == [second]


def test_a_turn_whose_member_failed_is_passed(scene):
    member = scene.sample(0)
    scene.ledger.failed(scene.claim(member), failure_of(RuntimeError("a bug")))
    first, action = OpId("first"), OptimStep(adam=AdamParams())
    op = TrainOp(id=first, tenant=TenantId("anna"), run=RunId("r"), turn=0, action=action, after=After(ops=(member,)))
    scene.append(op)
    scene.bells()
    second = scene.turn(1)
    assert scene.bells() == [second] and scene.ledger.read(first).status is Status.FAILED
    with pytest.raises(TurnPassed):
        scene.turn(-1)


def test_the_sweep_lets_go_of_an_op_that_was_left_behind(redis_scene, client):
    """A member settled by a worker that knows nothing of joins."""
    scene = redis_scene
    member = scene.sample(0)
    joined = scene.joined(member)
    client.hset(f"openrl:op:{member}", "status", "done")
    scene.bells()
    scene.ahead = 59.0
    assert scene.ledger.sweep().let_go == 0
    scene.ahead = 61.0
    assert scene.ledger.sweep().let_go == 1
    assert joined in scene.bells() and scene.ledger.sweep().let_go == 0


def test_nothing_is_left_in_redis_of_joins_that_ended(redis_scene, client):
    scene = redis_scene
    member = scene.sample(0)
    joined = scene.joined(member, on_failure="run")
    scene.finish(member)
    scene.finish(joined)
    assert not client.exists(f"openrl:joined:{member}", "openrl:joins")
    assert client.hmget(f"openrl:op:{joined}", "pending", "on_failure") == [None, None]
