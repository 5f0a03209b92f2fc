import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from openrl.domain.errors import CallerError, Draining, EngineBusy, FieldInvalid, GradientNotFinite
from openrl.domain.ids import SamplerId, TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from openrl.domain.stretch import Doing, Owner, Period
from workers.device.loop import DeviceLoop

ONE, OTHER = TenantId("one"), TenantId("other")
PACK_TOKENS = 100


@dataclass(frozen=True)
class Batch:
    run_id: str
    tokens: int = 10
    bad: bool = False


class Trainer:
    """Answers each batch with its tokens; `gate` lets a test hold the device."""

    padding_share = 0.125

    def __init__(self) -> None:
        self.passes: list[list[str]] = []
        self.steps: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def forward_backward(self, batches: Sequence[Batch], /) -> list[BatchResult | CallerError]:
        self.gate.wait(5)
        self.passes.append([batch.run_id for batch in batches])
        return [self._answer(batch) for batch in batches]

    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]], /) -> list[dict[str, float] | CallerError]:
        self.steps.append([run for run, _ in asked])
        return [
            GradientNotFinite("optim_step") if run == "bad" else {"rate": each.learning_rate} for run, each in asked
        ]

    def _answer(self, batch: Batch) -> BatchResult | CallerError:
        if batch.bad:
            return FieldInvalid("data", "bad")
        return BatchResult(logprobs=(), metrics={"loss:sum": float(batch.tokens)})


class Sampler:
    def __init__(self) -> None:
        self.left, self.tokens_drawn = 0, 0
        self.served = frozenset({Owner(ONE, SamplerId("s"))})

    @property
    def idle(self) -> bool:
        return self.left == 0

    def step(self) -> bool:
        self.left -= 1
        self.tokens_drawn += 3
        return self.left > 0


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


@pytest.fixture
def sampler() -> Sampler:
    return Sampler()


@pytest.fixture
def loop(trainer: Trainer, sampler: Sampler) -> Iterator[DeviceLoop[Batch]]:
    loop: DeviceLoop[Batch] = DeviceLoop(trainer, sampler, pack_tokens=PACK_TOKENS)
    loop.start()
    yield loop
    trainer.gate.set()
    loop.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def hold(loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor) -> None:
    """The device is busy until the gate opens."""
    trainer.gate.clear()
    pool.submit(loop.forward_backward, Batch("holder"), ONE)
    until(lambda: loop.use().train.seconds > 0 and not loop._waiting.batches)


def test_batches_that_wait_together_become_one_pass(
    loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor
) -> None:
    hold(loop, trainer, pool)
    batches = (Batch("a", 20), Batch("b", bad=True), Batch("c", 40))
    done = [pool.submit(loop.forward_backward, batch, ONE) for batch in batches]
    until(lambda: len(loop._waiting.batches) == 3)
    trainer.gate.set()
    assert done[0].result(5).metrics["loss:sum"] == 20.0
    with pytest.raises(FieldInvalid):
        done[1].result(5)
    assert done[2].result(5).metrics["loss:sum"] == 40.0
    assert list(map(len, trainer.passes)) == [1, 3]


def test_a_pack_with_a_refused_batch_teaches_nothing_of_cost(loop: DeviceLoop[Batch]) -> None:
    with pytest.raises(FieldInvalid):
        loop.forward_backward(Batch("a", 90, bad=True), ONE)
    loop.forward_backward(Batch("b", 20), ONE)
    loop.call(lambda: None)  # the device is through with the pack
    assert loop._cost.packs == 1


def test_a_batch_is_told_what_it_had_of_its_pack(
    loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor
) -> None:
    hold(loop, trainer, pool)
    before = time.monotonic() - 7.0
    asked = ((Batch("a", 30), ONE, before), (Batch("b", 10), OTHER, None))
    done = [pool.submit(loop.forward_backward, *each) for each in asked]
    until(lambda: len(loop._waiting.batches) == 2)
    trainer.gate.set()
    first, second = (future.result(5).metrics for future in done)
    assert (first["pack_share:mean"], second["pack_share:mean"]) == (0.75, 0.25)
    assert (first["pack_batches:mean"], first["pack_tenants:mean"]) == (2.0, 2.0)
    assert first["padding_share:mean"] == 0.125
    assert first["queue_seconds:max"] > 7.0 > second["queue_seconds:max"] > 0.0
    assert first["device_seconds:sum"] == pytest.approx(3 * second["device_seconds:sum"])


def test_one_tenants_many_large_batches_let_anothers_small_one_by(
    loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor
) -> None:
    hold(loop, trainer, pool)
    done = [pool.submit(loop.forward_backward, Batch(f"large{number}", PACK_TOKENS), ONE) for number in range(8)]
    until(lambda: len(loop._waiting.batches) == 8)
    done.append(pool.submit(loop.forward_backward, Batch("small"), OTHER))
    until(lambda: len(loop._waiting.batches) == 9)
    trainer.gate.set()
    for future in done:
        future.result(5)
    assert ["small"] in trainer.passes[1:3]
    assert len(trainer.passes) == 10


def test_calls_go_between_packs(loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor) -> None:
    hold(loop, trainer, pool)
    done = [pool.submit(loop.forward_backward, Batch(f"large{number}", PACK_TOKENS), ONE) for number in range(4)]
    until(lambda: len(loop._waiting.batches) == 4)
    packs_before = [pool.submit(loop.call, lambda: len(trainer.passes)) for _ in range(3)]
    until(lambda: len(loop._waiting.calls) == 3)
    trainer.gate.set()
    assert [future.result(5) for future in packs_before] == [1, 1, 1]
    for future in done:
        future.result(5)


def test_calls_that_keep_coming_do_not_keep_a_batch_waiting(
    loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor
) -> None:
    stopped = threading.Event()

    def call_on() -> None:
        while not stopped.is_set():
            loop.call(lambda: time.sleep(0.001))

    callers = [pool.submit(call_on) for _ in range(4)]
    for number in range(5):
        assert pool.submit(loop.forward_backward, Batch(f"run{number}"), ONE).result(2)
    stopped.set()
    for caller in callers:
        caller.result(5)


def test_optimizer_steps_that_wait_together_are_one_update_in_the_place_of_the_first(
    loop: DeviceLoop[Batch], trainer: Trainer, pool: ThreadPoolExecutor
) -> None:
    hold(loop, trainer, pool)
    order: list[str] = []
    done = []
    for number, run in enumerate(("a", "bad", "c")):
        done.append(
            pool.submit(loop.optim_step, run, AdamParams(learning_rate=float(number)), ONE, time.monotonic() - 9.0)
        )
        until(lambda: len(loop._waiting.steps) == len(done))
        pool.submit(loop.call, lambda: order.append("call") if trainer.steps else order.append("early call"))
        until(lambda: len(loop._waiting.calls) == len(done) + 1)
    trainer.gate.set()
    first, third = done[0].result(5), done[2].result(5)
    with pytest.raises(GradientNotFinite):
        done[1].result(5)
    assert trainer.steps == [["a", "bad", "c"]]
    assert (first["rate"], third["rate"], first["steps_together"]) == (0.0, 2.0, 3.0)
    assert first["queue_seconds"] > 9.0 and first["device_seconds"] >= 0.0
    assert loop.call(lambda: order) == ["call"] * 3
    assert loop.optim_step("a", AdamParams(), ONE)["steps_together"] == 1.0


def test_answers_that_are_none_fail_those_who_wait_and_the_loop_goes_on(
    loop: DeviceLoop[Batch], trainer: Trainer, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(trainer, "forward_backward", lambda batches: [])
        broken.setattr(trainer, "optim_steps", lambda asked: [None])
        for asked in (lambda: loop.forward_backward(Batch("a"), ONE), lambda: loop.optim_step("a", AdamParams(), ONE)):
            with pytest.raises((ValueError, TypeError)):
                pool.submit(asked).result(2)
    assert loop.forward_backward(Batch("a", 20), ONE).metrics["loss:sum"] == 20.0


def test_a_step_without_memory_fails_alone(
    loop: DeviceLoop[Batch], trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "optim_steps", lambda asked: [EngineBusy("no memory")])
    with pytest.raises(EngineBusy):
        loop.optim_step("a", AdamParams(), ONE)


def test_optimizer_steps_that_break_the_engine_all_fail_and_the_loop_goes_on(
    loop: DeviceLoop[Batch], trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "optim_steps", lambda asked: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loop.optim_step("a", AdamParams(), ONE)
    assert loop.call(lambda: 7) == 7


def test_a_call_answers_or_raises_what_the_function_does(loop: DeviceLoop[Batch]) -> None:
    assert loop.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 // 0)
    assert loop.call(lambda: 8) == 8


def test_sampling_goes_on_when_woken(loop: DeviceLoop[Batch], sampler: Sampler) -> None:
    sampler.left = 50
    loop.wake()
    until(lambda: sampler.idle)


def test_the_device_tells_how_busy_it_was(loop: DeviceLoop[Batch], sampler: Sampler) -> None:
    assert loop.use().busy == 0.0
    loop.forward_backward(Batch("a", 20), ONE)
    loop.call(lambda: time.sleep(0.02))
    sampler.left = 4
    loop.wake()
    until(lambda: loop.use().sample.passes == 4)
    use = loop.use()
    assert (use.train.passes, use.train.tokens, use.sample.tokens) == (1, 20, 12)
    assert 0.02 <= use.train.seconds <= use.seconds
    assert 0.0 < use.busy <= 1.0


def test_the_device_tells_what_it_did_when_and_for_whom(
    loop: DeviceLoop[Batch], trainer: Trainer, sampler: Sampler, pool: ThreadPoolExecutor
) -> None:
    began = time.time()
    hold(loop, trainer, pool)
    done = [pool.submit(loop.forward_backward, Batch(run), tenant) for run, tenant in (("a", ONE), ("b", OTHER))]
    until(lambda: len(loop._waiting.batches) == 2)
    trainer.gate.set()
    assert [each.result(5) for each in done]
    loop.optim_step("a", AdamParams(), ONE)
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 // 0)
    sampler.left = 1
    loop.wake()
    until(lambda: loop.use().sample.passes == 1)
    told: list[Period] = []
    loop.timeline.tell(told.append)
    assert [(each.doing, {(owner.tenant, owner.name) for owner in each.of}) for each in told[0].stretches] == [
        (Doing.PACK, {(ONE, "holder")}),
        (Doing.PACK, {(ONE, "a"), (OTHER, "b")}),
        (Doing.UPDATE, {(ONE, "a")}),
        (Doing.CALL, set()),
        (Doing.SAMPLE, {(ONE, "s")}),
    ]
    times = [when for each in told[0].stretches for when in (each.began, each.ended)]
    assert times == sorted(times) and began - 0.1 <= times[0] <= times[-1] <= told[0].ended <= time.time() + 0.1


def test_waiting_for_weights_is_nobodys_time_on_the_device(loop: DeviceLoop[Batch], sampler: Sampler) -> None:
    sampler.served, sampler.left = frozenset(), 2
    loop.wake()
    until(lambda: loop.use().sample.passes == 2)
    told: list[Period] = []
    loop.timeline.tell(told.append)
    assert told[0].stretches == ()


def test_apart_sampling_goes_on_while_a_batch_is_on_the_device(
    trainer: Trainer, sampler: Sampler, pool: ThreadPoolExecutor
) -> None:
    loop = DeviceLoop(trainer, sampler, pack_tokens=PACK_TOKENS, apart=True)
    loop.start()
    trainer.gate.clear()
    batch = pool.submit(loop.forward_backward, Batch("a"), ONE)
    try:
        sampler.left = 3
        loop.wake()
        until(lambda: sampler.idle)
        assert not batch.done()
    finally:
        trainer.gate.set()
        assert batch.result(5).metrics["loss:sum"] == 10.0
        loop.stop()


def test_apart_an_optimizer_step_does_not_wait_for_a_pack_of_others(trainer: Trainer, pool: ThreadPoolExecutor) -> None:
    loop = DeviceLoop(trainer, None, pack_tokens=PACK_TOKENS, apart=True)
    loop.start()
    trainer.gate.clear()
    batch = pool.submit(loop.forward_backward, Batch("a"), ONE)
    try:
        assert loop.optim_step("b", AdamParams(learning_rate=0.5), ONE)["rate"] == 0.5
        with pytest.raises(GradientNotFinite):
            loop.optim_step("bad", AdamParams(), ONE)
        assert not batch.done()
    finally:
        trainer.gate.set()
        batch.result(5)
        loop.stop()
    with pytest.raises(Draining):
        loop.optim_step("b", AdamParams(), ONE)


def test_stopping_hands_back_what_waits(trainer: Trainer, pool: ThreadPoolExecutor) -> None:
    loop: DeviceLoop[Batch] = DeviceLoop(trainer, None)
    loop.start()
    hold(loop, trainer, pool)
    waiting = [pool.submit(loop.call, lambda: 1), pool.submit(loop.forward_backward, Batch("b"), ONE)]
    waiting.append(pool.submit(loop.optim_step, "a", AdamParams(), ONE))
    until(lambda: len(loop._waiting.calls) == 2 and len(loop._waiting.batches) == 1)
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    for future in waiting:
        with pytest.raises(Draining):
            future.result(5)
    trainer.gate.set()
    stopper.join(5)
    assert trainer.passes == [["holder"]]
    with pytest.raises(Draining):
        loop.call(lambda: 1)


def test_training_ends_and_hands_back_what_waits_while_sampling_goes_on(
    loop: DeviceLoop[Batch], trainer: Trainer, sampler: Sampler, pool: ThreadPoolExecutor
) -> None:
    hold(loop, trainer, pool)
    waiting = [
        pool.submit(loop.forward_backward, Batch("b"), ONE),
        pool.submit(loop.optim_step, "a", AdamParams(), ONE),
    ]
    until(lambda: len(loop._waiting.calls) == 1 and len(loop._waiting.batches) == 1)
    loop.end_training()
    for future in waiting:
        with pytest.raises(Draining):
            future.result(5)
    trainer.gate.set()
    until(lambda: trainer.passes == [["holder"]])
    with pytest.raises(Draining):
        loop.forward_backward(Batch("c"), ONE)
    sampler.left = 3
    loop.wake()
    until(lambda: sampler.left == 0)
