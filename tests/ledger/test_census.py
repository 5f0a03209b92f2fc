"""What stands in the queues, and what an op has been through."""

import pytest

from openrl.domain.errors import OpCancelled
from openrl.domain.ids import OpId
from openrl.ledger import census
from openrl.ledger.census import MEMBERS_TOLD
from openrl.ledger.port import Brings

LINE = "samples"


def shares(scene):
    """(waiting, held) by queue and tenant."""
    return {
        queue.name: {str(share.tenant): (share.waiting, share.held) for share in queue.shares}
        for queue in scene.ledger.queues()
    }


def test_nothing_is_told_of_an_empty_ledger(scene):
    assert scene.ledger.queues() == []
    scene.ledger.stay("", Brings(line=LINE, slots=8))
    (queue,) = scene.ledger.queues()
    assert (queue.name, queue.slots, queue.shares, queue.waiting, queue.held) == (LINE, 8, (), 0, 0)


def test_ops_that_stand_that_were_rung_and_that_are_held_are_counted_by_tenant(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=8))
    ops = [scene.sample(number, sampler=f"s{number % 3}", line=LINE) for number in range(10)]
    scene.sample(0, "bert", line=LINE)
    assert shares(scene) == {LINE: {"anna": (10, 0), "bert": (1, 0)}}
    held = scene.claim(ops[0])
    assert shares(scene) == {LINE: {"anna": (9, 1), "bert": (1, 0)}}
    (queue,) = scene.ledger.queues()
    assert (queue.waiting, queue.held, queue.slots) == (10, 1, 8)
    scene.finish_with_bytes(held, 1)
    for op in ops[1:]:
        scene.ledger.cancel(op, OpCancelled())
    assert shares(scene) == {LINE: {"bert": (1, 0)}}


def test_slots_of_a_worker_that_is_gone_do_not_count(scene):
    scene.for_worker("one").stay("", Brings(line=LINE, slots=8))
    scene.for_worker("two").stay("", Brings(line=LINE, slots=4))
    assert [queue.slots for queue in scene.ledger.queues()] == [12]
    scene.for_worker("two").leave()
    assert [queue.slots for queue in scene.ledger.queues()] == [8]
    scene.ahead += 16
    scene.sample(0, line=LINE)
    assert [queue.slots for queue in scene.ledger.queues()] == [0]


def test_a_run_counts_with_all_its_turns(scene):
    first = scene.turn(0)
    for turn in (1, 2, 5):
        scene.turn(turn)
    scene.turn(3, run="gap", tenant="bert")
    assert shares(scene) == {"q": {"anna": (4, 0), "bert": (1, 0)}}
    held = scene.claim(first)
    assert shares(scene) == {"q": {"anna": (3, 1), "bert": (1, 0)}}
    scene.ledger.give_back(held)
    assert shares(scene) == {"q": {"anna": (4, 0), "bert": (1, 0)}}


def test_an_op_that_waits_for_others_is_in_no_queue_yet(scene):
    member = scene.sample(0)
    scene.joined(member, on_failure="run")
    assert shares(scene) == {"q": {"anna": (1, 0)}}
    scene.finish(member)
    assert shares(scene) == {"q": {"anna": (1, 0)}}


def test_the_oldest_that_waits_tells_its_age(scene):
    scene.sample(0, "bert", line=LINE)
    scene.ahead += 100
    first = scene.turn(0)
    scene.ahead += 50
    scene.turn(1)
    scene.ahead += 7
    ages = {queue.name: queue.shares[0].oldest_seconds for queue in scene.ledger.queues()}
    assert ages == {LINE: pytest.approx(157, abs=2), "q": pytest.approx(57, abs=2)}
    scene.claim(first)
    ages = {queue.name: queue.shares[0].oldest_seconds for queue in scene.ledger.queues()}
    assert ages["q"] == pytest.approx(7, abs=2)
    scene.claim(OpId("s.0.0"))
    (held,) = (share for queue in scene.ledger.queues() if queue.name == LINE for share in queue.shares)
    assert held.oldest_seconds is None


def test_the_last_in_line_is_told_when_it_is_rung(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=2))
    ops = [scene.sample(number, line=LINE) for number in range(30)]
    (queue,) = scene.ledger.queues()
    assert queue.shares[0].seconds is None, "nothing tells the pace yet"
    for op in ops[:10]:
        scene.ahead += 3
        scene.ledger.stay("", Brings(line=LINE, slots=2))
        scene.finish(op)
    (queue,) = scene.ledger.queues()
    assert queue.shares[0].seconds == pytest.approx(19 * 3, abs=5)
    assert queue.shares[0].seconds == pytest.approx(scene.ledger.place(ops[-1]).seconds, abs=1)


def test_an_ops_life_is_told_from_its_append_to_its_end(scene):
    op = scene.sample(0, line=LINE)
    waits = scene.ledger.life(op)
    assert (waits.rung_again, waits.holder, waits.claimed, waits.settled, waits.line) == (0, "", None, None, LINE)
    assert (waits.rung, waits.queue) == (pytest.approx(waits.appended, abs=1), "q")
    scene.ahead += 30
    scene.ledger.sweep()
    held = scene.for_worker("w1").claim(op)
    life = scene.ledger.life(op)
    assert (life.rung_again, life.rung) == (1, waits.rung)
    assert (life.holder, life.settled) == ("w1", None)
    assert life.claimed - life.appended == pytest.approx(30, abs=2)
    scene.for_worker("w1").give_back(held)
    back = scene.ledger.life(op)
    assert (back.holder, back.rung_again) == ("", 0) and back.rung - waits.rung == pytest.approx(30, abs=2)
    scene.for_worker("w2").claim(op)
    scene.ahead += 10
    scene.ledger.cancel(op, OpCancelled())
    over = scene.ledger.life(op)
    assert (over.rung, over.rung_again, over.queue) == (back.rung, 0, "q"), "what it has been through stays"
    assert (over.holder, over.line) == ("w2", "")
    assert over.settled - over.claimed == pytest.approx(10, abs=2) and over.now >= over.settled


def test_an_op_that_stands_was_not_rung_and_one_that_waits_names_its_members(scene):
    scene.ledger.stay("", Brings(line=LINE, slots=2))
    first, second = (scene.sample(number, line=LINE) for number in range(2))
    stands = scene.ledger.life(second)
    assert (stands.rung, stands.rung_again) == (None, None)
    waits = scene.joined(first, second, on_failure="run")
    scene.finish(first)
    life = scene.ledger.life(waits)
    assert life.after == ((first, "done"), (second, "waiting")) and life.members == 2 and life.rung_again is None
    scene.finish(second)
    scene.finish(waits)
    assert scene.ledger.life(waits).after == ((first, "done"), (second, "done"))
    assert scene.ledger.life(OpId("never")) is None


def test_of_many_members_the_first_are_told(scene):
    members = [scene.sample(number) for number in range(MEMBERS_TOLD + 5)]
    waits = scene.joined(*members, on_failure="run")
    for _ in ("waiting", "settled"):
        life = scene.ledger.life(waits)
        assert life.members == MEMBERS_TOLD + 5 and [op for op, _ in life.after] == members[:MEMBERS_TOLD]
        scene.ledger.cancel(waits, OpCancelled())


def test_a_member_that_is_forgotten_is_told_without_its_status(stage):
    scene = stage(keep_seconds=100.0)
    member = scene.sample(0)
    scene.finish(member)
    waits = scene.joined(member)
    scene.ahead += 90
    scene.finish(waits)
    for scene.ahead in (110, 185):
        scene.ledger.sweep()
    assert scene.ledger.life(waits).after == ((member, ""),)


def test_a_census_of_several_pages_counts_everything_once(scene, monkeypatch):
    monkeypatch.setattr(census, "PAGE", 3)
    scene.ledger.stay("", Brings(line=LINE, slots=16))
    ops = [scene.sample(number, f"t{number % 2}", sampler=f"s{number % 7}", line=LINE) for number in range(28)]
    for number in range(7):
        scene.turn(0, run=f"r{number}")
        scene.turn(1, run=f"gap{number}", tenant="bert")
    for op in ops[:4]:
        scene.claim(op)
    assert shares(scene) == {LINE: {"t0": (12, 2), "t1": (12, 2)}, "q": {"anna": (7, 0), "bert": (7, 0)}}
