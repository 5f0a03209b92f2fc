from dataclasses import dataclass

from openrl.domain.ids import TenantId
from openrl.domain.run import AdamParams
from workers.device.waiting import BatchWaiting, CallWaiting, StepWaiting, Waiting

ONE = TenantId("one")


@dataclass(frozen=True)
class Batch:
    run_id: str
    tokens: int = 10


def batch(run: str) -> BatchWaiting[Batch]:
    return BatchWaiting(Batch(run), ONE, 10, since=0.0)


def step(run: str) -> StepWaiting:
    return StepWaiting(run, AdamParams(), ONE, since=0.0)


def waiting() -> Waiting[Batch]:
    return Waiting(100, lambda tokens, batches: False)


def test_calls_that_come_after_a_pack_ended_go_behind_the_next_pack() -> None:
    it, early, late, waits = waiting(), CallWaiting(int), CallWaiting(int), batch("a")
    it.add_call(early)
    it.add_batch(waits)
    it.pack_ended()
    it.add_call(late)
    assert [it.take() for _ in range(3)] == [early, [waits], late]
    assert not it


def test_steps_that_wait_are_one_call_in_the_place_of_the_first() -> None:
    it, first, call, second = waiting(), step("a"), CallWaiting(int), step("b")
    it.add_step(first, str)
    it.add_call(call)
    it.add_step(second, str)
    taken = it.take()
    assert isinstance(taken, CallWaiting) and taken.call is str
    assert it.take_steps() == [first, second]
    assert it.take() is call
    assert it.take_steps() == []


def test_everything_can_be_taken_out_at_once() -> None:
    it, call, waits, steps = waiting(), CallWaiting(int), batch("a"), step("b")
    it.add_call(call)
    it.add_batch(waits)
    it.add_step(steps, str)
    taken = it.clear()
    assert all(any(each is item for each in taken) for item in (call, waits, steps))
    assert not it and it.take_steps() == []
