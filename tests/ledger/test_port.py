"""What every ledger promises, whatever it is kept in."""

import pytest

from openrl.domain.errors import ClaimLost, EngineBusy, OpCancelled, RunLost, TooManyWaiting, TurnPassed
from openrl.domain.ids import DepotKey, OpId, RunId, TenantId
from openrl.domain.op import OptimStep, SampleOp, Status, TrainOp
from openrl.domain.outcome import Category, StepResult, failure_of
from openrl.domain.run import AdamParams
from openrl.ledger.port import Swept

ANNA, BERT = TenantId("anna"), TenantId("bert")
RUN = RunId("r")
RESULT = StepResult(metrics={"loss:sum": 1.5})
FAILURE = failure_of(RunLost("r"))


# ------------------------------------------------------------------------------------------------ once through
def test_an_op_goes_from_waiting_over_held_to_done(scene):
    op_id = scene.turn(0)
    assert scene.bells() == [op_id]
    assert (scene.ledger.read(op_id).status, scene.ledger.read(op_id).queue) == (Status.WAITING, "q")
    held = scene.claim(op_id)
    assert (held.epoch, held.attempt) == (1, 1)
    action = OptimStep(adam=AdamParams())
    assert held.op == TrainOp(id=op_id, tenant=ANNA, run=RUN, turn=0, action=action)
    assert scene.ledger.read(op_id).status is Status.HELD
    scene.ledger.done(held, RESULT)
    record = scene.ledger.read(op_id)
    assert (record.status, record.result, record.failure, record.queue) == (Status.DONE, RESULT, None, "")
    assert (record.tenant, record.kind, record.attempts) == (ANNA, "optim_step", 1)


def test_a_claim_tells_how_long_the_op_waited_since_it_was_appended(scene):
    op_id = scene.turn(0)
    scene.ahead += 4.0
    first = scene.claim(op_id)
    assert 4.0 <= first.waited_seconds < 5.0
    scene.ledger.give_back(first)
    scene.ahead += 3.0
    assert 7.0 <= scene.claim(op_id).waited_seconds < 8.0


def test_samples_and_rewards_come_back_as_they_were_appended(scene):
    sample, reward = scene.claim(scene.sample(7)).op, scene.claim(scene.reward()).op
    assert isinstance(sample, SampleOp)
    assert (sample.sampler, sample.number, sample.action.params.max_tokens) == ("s", 7, 1)
    assert (reward.tenant, reward.action.texts) == (ANNA, ("a",))


def test_a_failure_is_read_back(scene):
    op_id = scene.turn(0)
    scene.ledger.failed(scene.claim(op_id), FAILURE)
    record = scene.ledger.read(op_id)
    assert (record.status, record.failure, record.result) == (Status.FAILED, FAILURE, None)
    assert record.failure.category is Category.SERVER


def test_an_unknown_op_is_nothing(scene):
    assert scene.ledger.read(OpId("no")) is None
    assert scene.ledger.claim(OpId("no")) is None
    scene.ledger.cancel(OpId("no"), OpCancelled())
    assert scene.ledger.statuses([OpId("no")]) == {}
    assert scene.ledger.statuses([]) == {}


def test_statuses_of_many_ops_at_once(scene):
    a, b = scene.sample(0), scene.sample(1)
    scene.finish(b)
    assert scene.ledger.statuses([a, b, OpId("no")]) == {a: "waiting", b: "done"}


# ------------------------------------------------------------------------------------------------ only once
def test_a_repeated_turn_answers_the_first_ops_id_and_rings_nothing(scene):
    first = scene.turn(0)
    scene.bells()
    assert scene.turn(0) == first
    scene.finish(first)
    assert scene.turn(0) == first
    assert scene.bells() == []
    assert scene.ledger.waiting(ANNA) == 0


def test_repeated_samples_are_one(scene):
    assert scene.sample(3) == scene.sample(3) != scene.sample(4)


def test_a_held_op_is_not_claimed_twice(scene):
    op_id = scene.sample()
    scene.claim(op_id)
    assert scene.ledger.claim(op_id) is None


def test_a_settled_op_is_neither_claimed_nor_settled_again(scene):
    op_id = scene.sample()
    held = scene.claim(op_id)
    scene.ledger.done(held, RESULT)
    assert scene.ledger.claim(op_id) is None
    with pytest.raises(ClaimLost):
        scene.ledger.failed(held, FAILURE)
    with pytest.raises(ClaimLost):
        scene.ledger.give_back(held)
    assert scene.ledger.read(op_id).result == RESULT


def test_the_same_settlement_may_be_repeated(scene):
    held = scene.claim(scene.sample())
    scene.ledger.done(held, RESULT)
    scene.ledger.done(held, RESULT)
    assert scene.ledger.waiting(ANNA) == 0


def test_a_stale_epoch_cannot_settle(scene):
    op_id = scene.sample()
    stale = scene.claim(op_id)
    scene.ahead += 16
    scene.ledger.sweep()
    with pytest.raises(ClaimLost):
        scene.ledger.done(stale, RESULT)
    fresh = scene.claim(op_id)
    assert fresh.epoch > stale.epoch
    with pytest.raises(ClaimLost):
        scene.ledger.failed(stale, FAILURE)
    scene.ledger.done(fresh, RESULT)


def test_an_epoch_is_not_used_again_when_the_attempt_is_taken_back(scene):
    op_id = scene.sample()
    first = scene.claim(op_id)
    scene.ledger.give_back(first, counts=False)
    second = scene.claim(op_id)
    assert (second.attempt, second.epoch) == (1, first.epoch + 1)


# ------------------------------------------------------------------------------------------------ turns
def test_turns_run_in_order_whatever_order_they_arrive_in(scene):
    late = [scene.turn(turn) for turn in (2, 3, 1)]
    assert scene.bells() == []
    assert [scene.ledger.claim(op_id) for op_id in late] == [None, None, None]
    created = scene.turn(0)
    assert scene.bells() == [created]
    for op_id, following in ((created, late[2]), (late[2], late[0]), (late[0], late[1])):
        scene.finish(op_id)
        assert scene.bells() == [following]


def test_a_held_turn_blocks_the_turns_behind_it(scene):
    first, second = scene.turn(0), scene.turn(1)
    scene.claim(first)
    assert scene.bells() == [first]
    assert scene.ledger.claim(second) is None


def test_a_failed_turn_lets_the_next_one_go_on(scene):
    first, second = scene.turn(0), scene.turn(1)
    scene.ledger.failed(scene.claim(first), FAILURE)
    assert scene.bells() == [first, second]
    scene.claim(second)


def test_runs_do_not_wait_for_each_other(scene):
    scene.claim(scene.turn(0, run="a"))
    scene.claim(scene.turn(0, run="b"))


def test_a_skipped_turn_is_not_waited_for(scene):
    scene.finish(scene.turn(0))
    second = scene.turn(2)
    scene.bells()
    scene.ledger.skip(RUN, 1)
    assert scene.bells() == [second]


def test_skips_may_come_in_any_order_and_before_any_op(scene):
    for turn in (3, 1, 0):
        scene.ledger.skip(RUN, turn)
    fourth = scene.turn(4)
    assert scene.bells() == []
    second = scene.turn(2)
    assert scene.bells() == [second]
    scene.finish(second)
    assert scene.bells() == [fourth]


def test_a_skip_does_nothing_where_the_turn_holds_an_op_or_has_passed(scene):
    first, second = scene.turn(0), scene.turn(1)
    scene.ledger.skip(RUN, 0)
    scene.ledger.skip(RUN, 1)
    scene.finish(first)
    scene.ledger.skip(RUN, 0)
    scene.finish(second)
    assert scene.bells() == [first, second]


def test_a_turn_that_comes_after_it_was_passed_is_refused(scene):
    scene.ledger.skip(RUN, 0)
    scene.ledger.skip(RUN, 2)
    for turn in (0, 2):
        with pytest.raises(TurnPassed, match=f"past {turn}"):
            scene.turn(turn)
    assert scene.ledger.waiting(ANNA) == 0


# ------------------------------------------------------------------------------------------------ gaps
def test_a_gap_is_skipped_after_a_while_from_when_the_first_op_stood_behind_it(scene):
    scene.ahead += 1000  # the run may well be idle before
    behind = scene.turn(2)
    scene.ahead += 100
    other = scene.turn(5)
    scene.ahead += 19
    assert scene.ledger.sweep().gaps_skipped == 0
    scene.ahead += 2
    assert scene.ledger.sweep() == Swept(gaps_skipped=1)
    assert scene.bells() == [behind]
    assert scene.ledger.sweep().gaps_skipped == 0
    scene.finish(behind)
    scene.ahead += 119
    assert scene.ledger.sweep().gaps_skipped == 0
    scene.ahead += 2
    assert scene.ledger.sweep().gaps_skipped == 1
    assert scene.bells() == [other]


def test_work_before_the_gap_does_not_count_as_waiting_for_it(scene):
    first = scene.turn(0)
    scene.turn(2)
    scene.ahead += 500
    scene.finish(first)
    scene.ahead += 119
    assert scene.ledger.sweep().gaps_skipped == 0
    scene.ahead += 2
    assert scene.ledger.sweep().gaps_skipped == 1


def test_a_gap_of_many_turns_keeps_its_clock_while_some_of_them_come_in(scene):
    scene.ledger.skip(RUN, 0)
    scene.turn(3)
    scene.ahead += 100
    scene.ledger.skip(RUN, 1)
    scene.ahead += 21
    assert scene.ledger.sweep().gaps_skipped == 1


def test_a_late_turn_closes_the_gap(scene):
    behind = scene.turn(1)
    scene.ahead += 119
    filling = scene.turn(0)
    assert scene.bells() == [filling]
    scene.claim(filling)
    scene.ahead += 10
    assert scene.ledger.sweep() == Swept()
    assert scene.ledger.claim(behind) is None


def test_a_turn_that_the_gap_was_skipped_over_is_refused_but_a_resend_is_not(scene):
    behind = scene.turn(1)
    scene.ahead += 121
    scene.ledger.sweep()
    with pytest.raises(TurnPassed):
        scene.turn(0)
    assert scene.turn(1) == behind


def test_a_turn_far_ahead_costs_no_time(scene):
    far = scene.turn(2**31 - 1)
    scene.ahead += 121
    assert scene.ledger.sweep().gaps_skipped == 1
    scene.finish(far)


# ------------------------------------------------------------------------------------------------ attempts
def test_an_op_given_back_is_rung_again_and_its_attempt_counts(scene):
    op_id = scene.sample()
    scene.bells()
    scene.ledger.give_back(scene.claim(op_id), EngineBusy("loading"))
    assert scene.bells() == [op_id]
    assert scene.claim(op_id).attempt == 2


def test_an_op_claimed_too_often_fails_and_its_run_goes_on(scene):
    op_id, following = scene.turn(0), scene.turn(1)
    for _ in range(3):
        scene.ledger.give_back(scene.claim(op_id))
    scene.bells()
    assert scene.ledger.claim(op_id) is None
    record = scene.ledger.read(op_id)
    assert (record.failure.error, record.failure.category) == ("WornOut", Category.SERVER)
    assert scene.bells() == [following]
    assert scene.ledger.waiting(ANNA) == 1


def test_attempts_taken_back_never_wear_an_op_out(scene):
    op_id = scene.sample()
    for _ in range(10):
        scene.ledger.give_back(scene.claim(op_id), counts=False)
    scene.finish(op_id)


# ------------------------------------------------------------------------------------------------ cancelling
def test_cancelling_a_waiting_op_fails_it(scene):
    op_id = scene.sample()
    scene.ledger.cancel(op_id, OpCancelled())
    assert scene.ledger.read(op_id).failure == failure_of(OpCancelled())
    assert scene.ledger.claim(op_id) is None
    assert scene.ledger.sweep() == Swept()


def test_the_holder_of_a_cancelled_op_finds_out(scene):
    held, other = scene.claim(scene.sample(0)), scene.claim(scene.sample(1))
    scene.ledger.cancel(held.op.id, OpCancelled())
    assert scene.ledger.renew([held, other]) == {held.op.id}
    with pytest.raises(ClaimLost):
        scene.ledger.done(held, RESULT)


def test_cancelling_a_settled_op_does_nothing(scene):
    op_id = scene.sample()
    scene.finish(op_id)
    scene.ledger.cancel(op_id, OpCancelled())
    assert scene.ledger.read(op_id).result == RESULT


def test_cancelling_a_turn_that_has_not_come_yet_lets_the_run_pass_it(scene):
    first, second, third = scene.turn(0), scene.turn(1), scene.turn(2)
    scene.ledger.cancel(second, OpCancelled())
    scene.bells()
    scene.finish(first)
    assert scene.bells() == [third]


def test_cancelling_all_that_stood_behind_a_gap_ends_the_wait(scene):
    scene.ledger.cancel(scene.turn(4), OpCancelled())
    scene.ahead += 121
    assert scene.ledger.sweep().gaps_skipped == 0
    assert scene.turn(0) in scene.bells()


# ------------------------------------------------------------------------------------------------ sweeping
def test_a_lapsed_claim_is_taken_back_and_rung(scene):
    op_id = scene.turn(0)
    scene.claim(op_id)
    scene.bells()
    scene.ahead += 14
    assert scene.ledger.sweep() == Swept()
    scene.ahead += 2
    assert scene.ledger.sweep() == Swept(taken_back=1)
    assert scene.bells() == [op_id]
    assert scene.claim(op_id).attempt == 2


def test_a_renewed_claim_does_not_lapse(scene):
    held = scene.claim(scene.sample())
    for _ in range(5):
        scene.ahead += 14
        assert scene.ledger.renew([held]) == frozenset()
        assert scene.ledger.sweep() == Swept()
    assert scene.ledger.renew([]) == frozenset()
    scene.ledger.done(held, RESULT)


def test_a_lapsed_claim_may_settle_as_long_as_nobody_noticed(scene):
    held = scene.claim(scene.sample())
    scene.ahead += 100
    scene.ledger.done(held, RESULT)


def test_an_op_whose_worker_dies_each_time_is_given_up(scene):
    op_id, following = scene.turn(0), scene.turn(1)
    for _ in range(3):
        scene.claim(op_id)
        scene.bells()
        scene.ahead += 16
        swept = scene.ledger.sweep()
    assert swept == Swept(given_up=1)
    assert scene.ledger.read(op_id).failure.error == "WornOut"
    assert scene.bells() == [following]


def test_a_lost_bell_is_rung_again_with_growing_pauses(scene):
    op_id, _blocked = scene.turn(0), scene.turn(1)
    scene.bells()
    for pause in (5, 10, 20, 40, 40):
        scene.ahead += pause - 0.5
        assert scene.ledger.sweep() == Swept()
        scene.ahead += 1
        assert scene.ledger.sweep() == Swept(rung_again=1)
        assert scene.bells() == [op_id]


def test_settled_ops_are_forgotten_after_their_time(scene):
    op_id, other = scene.turn(0), scene.sample()
    held = scene.claim(op_id)
    scene.ledger.done(held, RESULT)
    scene.ledger.snapshotted(held.lease, 0, DepotKey("k"))
    scene.finish(other)
    scene.ahead += 24 * 3600 - 1
    assert scene.ledger.sweep() == Swept()
    scene.ahead += 2
    assert scene.ledger.sweep() == Swept(forgotten=2)
    assert scene.ledger.read(op_id) is None
    with pytest.raises(TurnPassed):
        scene.turn(0)


def test_a_second_sweep_finds_nothing_left_to_do(scene):
    for number in range(5):
        scene.claim(scene.sample(number))
        scene.turn(1, run=f"r{number}")
    scene.ahead += 200
    first = scene.ledger.sweep()
    assert (first.taken_back, first.gaps_skipped) == (5, 5)
    assert scene.ledger.sweep() == Swept()


# ------------------------------------------------------------------------------------------------ bounds
def test_a_tenant_is_stopped_at_its_bound_and_others_are_not(stage):
    scene = stage(max_waiting_per_tenant=2)
    first, _second = scene.sample(0), scene.sample(1)
    with pytest.raises(TooManyWaiting):
        scene.sample(2)
    assert scene.sample(0) == first
    scene.sample(5, tenant="bert")
    assert (scene.ledger.waiting(ANNA), scene.ledger.waiting(BERT)) == (2, 1)
    scene.finish(first)
    scene.sample(2)


def test_the_turn_that_others_wait_for_passes_the_bound(stage):
    scene = stage(max_waiting_per_tenant=2)
    scene.turn(1)
    scene.turn(2)
    with pytest.raises(TooManyWaiting):
        scene.turn(3)
    with pytest.raises(TooManyWaiting):
        scene.turn(0, run="another")
    assert scene.turn(0) in scene.bells()


def test_the_count_of_waiting_ops_is_exact_whichever_way_they_end(scene):
    ids = [scene.sample(number) for number in range(6)]
    assert scene.ledger.waiting(ANNA) == 6
    scene.finish(ids[0])
    scene.ledger.failed(scene.claim(ids[1]), FAILURE)
    scene.ledger.cancel(ids[2], OpCancelled())
    scene.claim(ids[3])
    scene.ledger.cancel(ids[3], OpCancelled())
    for _ in range(3):
        scene.ledger.give_back(scene.claim(ids[4]))
    scene.ledger.claim(ids[4])
    assert scene.ledger.waiting(ANNA) == 1
    for _ in range(3):
        scene.claim(ids[5])
        scene.ahead += 16
        scene.ledger.sweep()
    assert scene.ledger.waiting(ANNA) == 0
