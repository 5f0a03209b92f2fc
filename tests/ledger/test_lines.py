"""Ops that stand in line: whose is rung, and when."""

import pytest

from openrl.domain.errors import OpCancelled
from openrl.domain.ids import OpId
from openrl.domain.op import Status
from openrl.domain.outcome import Category, Failure, StepResult
from openrl.ledger.port import BELLS_AT_LEAST, UNSERVED_SLOTS, Brings

LINE = "samples"
RESULT = StepResult(metrics={})


@pytest.fixture
def served(scene):
    """One worker that brings eight slots."""
    scene.ledger.stay("", Brings(line=LINE, slots=8))
    return scene


def flood(scene, count: int, tenant: str = "anna", first: int = 0) -> list[OpId]:
    """Samples of one sampler of the tenant."""
    return [scene.sample(first + n, tenant, sampler=f"{tenant}'s", line=LINE) for n in range(count)]


def test_a_tenant_alone_has_half_of_the_slots_and_the_rest_of_its_ops_stand(served):
    ops = flood(served, 10)
    assert served.bells() == ops[:4]
    assert served.ledger.claim(ops[4]) is None, "it stands in line"
    assert served.ledger.read(ops[4]).status is Status.WAITING


def test_an_op_without_a_line_is_rung_at_once_however_many_there_are(served):
    ops = [served.sample(number) for number in range(20)]
    assert served.bells() == ops
    assert served.bells() == [] and flood(served, 5)[:4] == served.bells(), "and takes no slot"


def test_as_one_settles_the_next_is_rung(served):
    ops = flood(served, 6)
    served.bells()
    served.finish(ops[2])
    assert served.bells() == [ops[4]]
    held = served.claim(ops[0])
    assert served.bells() == []
    served.ledger.failed(held, Failure(error="E", message="m", category=Category.SERVER))
    assert served.bells() == [ops[5]]


def test_whoever_comes_new_is_rung_at_once_behind_a_flood_of_another(served):
    flood(served, 1000)
    served.bells()
    (small,) = flood(served, 1, "bert")
    assert served.bells() == [small]


def test_two_floods_come_to_a_third_each_so_that_a_third_tenant_finds_a_place(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=9))
    flood(scene, 40)
    flood(scene, 40, "bert")
    out = scene.bells()
    for _ in range(20):
        scene.finish(out.pop(0))
        out += scene.bells()
    assert sorted(op_id.split("'")[0] for op_id in out) == ["anna"] * 3 + ["bert"] * 3
    (small,) = flood(scene, 1, "carl")
    assert scene.bells() == [small]


def test_slots_go_in_turn_between_tenants_then_samplers_and_in_order_within_one(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=1))
    names = (("anna", "a1"), ("anna", "a1"), ("anna", "a2"), ("bert", "b"), ("bert", "b"), ("anna", "a2"))
    for number, (tenant, sampler) in enumerate(names):
        scene.sample(number, tenant, sampler=sampler, line=LINE)
    order = []
    while heard := scene.bells():
        order += heard
        scene.finish(heard[0])
    assert [tuple(op_id.split(".")[:2]) for op_id in order] == [
        ("a1", "0"), ("a1", "1"), ("b", "3"), ("a2", "2"), ("b", "4"), ("a2", "5"),
    ]  # fmt: skip


def test_an_op_called_off_in_line_leaves_it_and_one_that_is_out_makes_room(served):
    ops = flood(served, 7)
    served.bells()
    served.ledger.cancel(ops[4], OpCancelled())
    assert served.bells() == []
    served.ledger.cancel(ops[1], OpCancelled())
    assert served.bells() == [ops[5]]
    served.ledger.cancel(ops[6], OpCancelled())
    served.finish(ops[0])
    assert served.bells() == [], "nobody stands any more"


def test_what_is_given_back_keeps_its_slot(served):
    ops = flood(served, 6)
    served.bells()
    served.ledger.give_back(served.claim(ops[0]))
    assert served.bells() == [ops[0]]
    served.finish(ops[0])
    assert served.bells() == [ops[4]]


def test_the_sweep_rings_what_was_rung_and_lost_and_not_what_stands(served):
    ops = flood(served, 6)
    served.bells()
    served.claim(ops[0])
    served.ahead += 6
    assert served.ledger.sweep().rung_again == 3
    assert served.bells() == ops[1:4]


def test_a_lapsed_claim_keeps_its_slot_and_a_worn_out_op_gives_it_up(served):
    ops = flood(served, 5)
    for _ in range(served.limits.max_attempts):
        served.bells()
        served.claim(ops[0])
        served.ahead += served.limits.hold_seconds + 1
        served.ledger.stay("", Brings(line=LINE, slots=8))
        swept = served.ledger.sweep()
    assert (swept.given_up, swept.moved) == (1, 0)
    assert ops[4] in served.bells()


def test_without_a_worker_few_are_rung_and_the_rest_when_one_comes(scene):
    ops = flood(scene, 50)
    assert scene.bells() == ops[: UNSERVED_SLOTS // 2]
    scene.ledger.stay("", Brings(line=LINE, slots=20))
    assert scene.bells() == ops[4:BELLS_AT_LEAST]
    for op_id in ops[:5]:
        scene.claim(op_id)
    assert scene.bells() == ops[8:10]
    scene.for_worker("another").stay("", Brings(line=LINE, slots=20))
    assert scene.bells() == ops[10:13]
    scene.for_worker("of another line").stay("", Brings(line="rewards", slots=20))
    assert scene.bells() == []


def gone(scene, how: str) -> None:
    """Its worker is gone."""
    if how == "silent":
        scene.ahead += scene.limits.hold_seconds + 1
    elif how == "draining":
        scene.ledger.stay()
    elif how == "elsewhere":
        scene.ledger.stay("", Brings(line="rewards", slots=8))
    else:
        scene.ledger.leave()


@pytest.mark.parametrize("how", ["silent", "draining", "elsewhere", "left"])
def test_slots_go_with_their_worker(scene, how):
    scene.ledger.stay("", Brings(line=LINE, slots=40))
    gone(scene, how)
    assert len(flood(scene, 50)) == 50 and len(scene.bells()) == UNSERVED_SLOTS // 2
    scene.ledger.stay("", Brings(line=LINE, slots=40))
    assert len(scene.bells()) == BELLS_AT_LEAST - UNSERVED_SLOTS // 2, "and come back with it"


def test_with_fewer_slots_than_ops_out_nobody_is_rung_until_there_are_free_ones(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=20))
    ops = flood(scene, 12)
    held = [scene.claim(op_id) for op_id in ops[:2]]
    assert scene.bells() == ops[:10]
    scene.ledger.stay("", Brings(line=LINE, slots=8))
    for claim in held:
        scene.finish_with_bytes(claim, 1)
    for op_id in ops[2:6]:
        scene.finish(op_id)
    assert scene.bells() == []
    scene.finish(ops[6])
    assert scene.bells() == [ops[10]]


def test_who_comes_behind_an_op_in_line_does_not_overtake_it(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=2))
    ops = flood(scene, 3)
    assert scene.bells() == ops[:1]
    scene.ledger.leave()
    late = flood(scene, 1, first=3)
    assert scene.bells() == [], "though there are more slots now that nobody listens"
    assert scene.ledger.sweep().moved == 3
    assert scene.bells() == ops[1:] + late


@pytest.mark.parametrize(("slots", "bells"), [(20, 8), (128, 8), (160, 10), (1024, 64)])
def test_a_tenant_has_a_bell_for_sixteen_slots_and_a_few_at_least(scene, slots, bells):
    scene.ledger.stay("", Brings(line=LINE, slots=slots))
    assert flood(scene, 100)[:bells] == scene.bells()


def test_few_bells_of_a_tenant_ring_at_once_and_the_next_as_one_is_claimed(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=128))
    ops = flood(scene, 100)
    heard = scene.bells()
    assert heard == ops[:8]
    first = scene.claim(heard.pop(0))
    assert scene.bells() == ops[8:9]
    scene.ledger.give_back(first)
    assert scene.bells() == ops[:1]
    scene.claim(ops[0])
    assert scene.bells() == [], "it did not count any more"
    scene.ledger.cancel(heard.pop(0), OpCancelled())
    heard = [*heard, ops[8], *scene.bells()]
    for op_id in heard:
        scene.claim(op_id)
        heard += scene.bells()
    assert len(heard) == 63 and heard[-1] == ops[64], "half of the slots are taken now"


def test_rewards_stand_in_a_line_of_their_own(served):
    flood(served, 6)
    served.bells()
    rewards = [served.reward(line="rewards") for _ in range(UNSERVED_SLOTS)]
    assert served.bells() == rewards[: UNSERVED_SLOTS // 2]
    served.finish(rewards[0])
    assert served.bells() == [rewards[UNSERVED_SLOTS // 2]]


# ------------------------------------------------------------------------------------------------ places
def test_an_op_in_line_knows_how_many_of_its_tenant_may_be_rung_before_it(served):
    ops = flood(served, 10)
    flood(served, 10, "bert")
    assert [place and place.ahead for place in map(served.ledger.place, ops)] == [None] * 4 + [0, 1, 2, 3, 4, 5]
    second = served.sample(0, "anna", sampler="another of anna's", line=LINE)
    assert served.ledger.place(second).ahead == 1, "samplers take turns"
    assert served.ledger.place(ops[9]).ahead == 6, "and there is one more in all"
    assert served.ledger.place(OpId("no")) is None
    assert served.ledger.place(served.turn(0)) is None


def test_the_pace_of_its_tenant_tells_how_long_an_op_stands(served):
    ops = flood(served, 200)
    assert served.ledger.place(ops[199]).seconds is None, "nothing was rung yet"
    for op_id in ops[:100]:
        served.ahead += 2.0
        served.finish(op_id)
    place = served.ledger.place(ops[199])
    assert place.ahead == 200 - 100 - 4 - 1
    assert place.seconds == pytest.approx(2.0 * 96, rel=0.05)
    served.finish(ops[100])
    assert served.ledger.place(ops[100]) is None


# ------------------------------------------------------------------------------------------------ across versions
def test_an_op_that_was_settled_without_regard_for_lines_does_not_keep_its_slot(client, redis_scene):
    """As a worker does that knows none."""
    redis_scene.ledger.stay("", Brings(line=LINE, slots=8))
    ops = flood(redis_scene, 6)
    redis_scene.bells()
    for op_id in ops[:2]:
        client.hset(f"openrl:op:{op_id}", "status", "done")
        client.zrem("openrl:ready", op_id)
    assert redis_scene.ledger.sweep().moved == 0
    redis_scene.ahead += 6
    redis_scene.ledger.stay("", Brings(line=LINE, slots=8))
    assert redis_scene.ledger.sweep().moved == 2
    assert set(redis_scene.bells()) == set(ops[2:])


def test_nothing_is_left_of_a_line_that_is_through(client, redis_scene):
    redis_scene.ledger.stay("", Brings(line=LINE, slots=8))
    flood(redis_scene, 20)
    flood(redis_scene, 20, "bert")
    while heard := redis_scene.bells():
        for op_id in heard:
            redis_scene.finish(op_id)
    redis_scene.ledger.leave()
    left = {key.decode().removeprefix("openrl:").split(":")[0] for key in client.scan_iter()}
    assert left == {"op", "once", "endings", "places"}
