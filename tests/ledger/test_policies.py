"""Policy versions: needed by unsettled ops, used of late, or retired."""

import pytest

from openrl.domain.errors import OpCancelled, WeightsRemoved
from openrl.domain.ids import DepotKey
from openrl.domain.op import SavePolicy
from openrl.domain.outcome import StepResult
from openrl.ledger.port import POLICY_SECONDS

POLICY, OTHER = DepotKey("policies/1"), DepotKey("policies/2")


def test_a_policy_that_nobody_needs_is_retired_and_samples_of_it_are_refused(scene):
    assert scene.ledger.retire(POLICY, 60.0)
    with pytest.raises(WeightsRemoved, match=r"weights of s were removed.*save_weights_for_sampler\(name\)"):
        scene.sample(policy=POLICY)
    assert scene.ledger.waiting("anna") == 0
    for number, policy in enumerate((OTHER, None)):
        scene.claim(scene.sample(number, policy=policy))
    assert scene.ledger.retire(POLICY, 60.0), "again, as after a crash"


def test_a_refused_sample_leaves_nothing_on_the_shelf(redis_scene):
    redis_scene.ledger.retire(POLICY, 0.0)
    with pytest.raises(WeightsRemoved):
        redis_scene.sample(policy=POLICY, tokens=20_000)
    assert redis_scene.shelf == {}


def test_a_policy_that_an_unsettled_sample_needs_is_not_retired_whichever_way_it_ends(scene):
    waiting, held = scene.sample(0, policy=POLICY), scene.claim(scene.sample(1, policy=POLICY))
    scene.ahead += 3600.0
    assert not scene.ledger.retire(POLICY, 0.0)
    scene.ledger.cancel(waiting, OpCancelled())
    assert not scene.ledger.retire(POLICY, 0.0)
    scene.ledger.give_back(held)
    assert not scene.ledger.retire(POLICY, 0.0)
    scene.finish(held.op.id)
    assert scene.ledger.retire(POLICY, 0.0)


def test_a_policy_is_retired_whoever_needs_it_where_that_does_not_matter(scene):
    held = scene.claim(scene.sample(0, policy=POLICY))
    assert not scene.ledger.retire(POLICY, 0.0)
    assert scene.ledger.retire(POLICY, None)
    with pytest.raises(WeightsRemoved):
        scene.sample(1, policy=POLICY)
    scene.ledger.done(held, StepResult(metrics={}))


def test_a_policy_that_was_used_of_late_is_not_retired(scene):
    scene.finish(scene.sample(policy=POLICY))
    scene.ahead += 59.0
    assert not scene.ledger.retire(POLICY, 60.0)
    assert scene.ledger.retire(OTHER, 60.0)
    scene.ahead += 2.0
    assert scene.ledger.retire(POLICY, 60.0)


def test_a_policy_that_is_yet_to_be_saved_or_was_just_saved_is_not_retired(scene):
    op_id = scene.turn(0, SavePolicy(target=POLICY))
    scene.ahead += 3600.0
    assert not scene.ledger.retire(POLICY, 60.0)
    scene.finish(op_id)
    assert not scene.ledger.retire(POLICY, 60.0)
    scene.ahead += 61.0
    assert scene.ledger.retire(POLICY, 60.0)


def test_a_sample_that_came_before_its_policy_was_retired_is_answered_again(scene):
    op_id = scene.sample(policy=POLICY)
    scene.finish(op_id)
    assert scene.ledger.retire(POLICY, 0.0)
    assert scene.sample(policy=POLICY) == op_id


def test_what_is_known_of_policies_is_forgotten_after_a_day(client, new_scene):
    scene = new_scene().on_redis(client)
    scene.finish(scene.sample(policy=OTHER))
    scene.ledger.retire(POLICY, 0.0)
    scene.ledger.sweep()
    assert {client.zcard("openrl:used"), client.zcard("openrl:retired")} == {1}
    scene.ahead += POLICY_SECONDS + 1.0
    scene.ledger.sweep()
    assert {client.exists(f"openrl:{name}") for name in ("used", "retired", "needed")} == {0}
