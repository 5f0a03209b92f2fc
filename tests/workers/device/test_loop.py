import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from openrl.domain.errors import CallerError, Draining, FieldInvalid
from openrl.domain.outcome import BatchResult
from workers.device.loop import DeviceLoop


class Trainer:
    """Answers each batch (a word) with its length; `gate` lets a test hold the device."""

    def __init__(self) -> None:
        self.passes: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def forward_backward(self, batches: Sequence[str], /) -> list[BatchResult | CallerError]:
        self.gate.wait(5)
        self.passes.append(list(batches))
        return [self._answer(word) for word in batches]

    def _answer(self, word: str) -> BatchResult | CallerError:
        if word == "bad":
            return FieldInvalid("data", "bad")
        return BatchResult(logprobs=(), metrics={"loss:sum": float(len(word))})


class Sampler:
    def __init__(self) -> None:
        self.left = 0

    @property
    def idle(self) -> bool:
        return self.left == 0

    def step(self) -> bool:
        self.left -= 1
        return self.left > 0


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


@pytest.fixture
def sampler() -> Sampler:
    return Sampler()


@pytest.fixture
def loop(trainer: Trainer, sampler: Sampler) -> Iterator[DeviceLoop[str]]:
    loop: DeviceLoop[str] = DeviceLoop(trainer, sampler)
    loop.start()
    yield loop
    trainer.gate.set()
    loop.stop()


def test_batches_that_wait_together_become_one_pass(loop: DeviceLoop[str], trainer: Trainer) -> None:
    trainer.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(loop.forward_backward, "a")
        while loop._queue:  # the device is busy with the first from here on
            pass
        rest = [pool.submit(loop.forward_backward, word) for word in ("bb", "bad", "dddd")]
        while len(loop._queue) < 3:
            pass
        trainer.gate.set()
        assert first.result(5).metrics == {"loss:sum": 1.0}
        assert rest[0].result(5).metrics == {"loss:sum": 2.0}
        with pytest.raises(FieldInvalid):
            rest[1].result(5)
        assert rest[2].result(5).metrics == {"loss:sum": 4.0}
    assert sorted(map(len, trainer.passes)) == [1, 3]


def test_a_call_answers_or_raises_what_the_function_does(loop: DeviceLoop[str]) -> None:
    assert loop.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 // 0)
    assert loop.call(lambda: 8) == 8


def test_sampling_goes_on_when_woken(loop: DeviceLoop[str], sampler: Sampler) -> None:
    sampler.left = 50
    loop.wake()
    for _ in range(1000):
        if sampler.idle:
            break
        threading.Event().wait(0.005)
    assert sampler.idle


def test_stopping_hands_back_what_waits(trainer: Trainer) -> None:
    loop: DeviceLoop[str] = DeviceLoop(trainer, None)
    trainer.gate.clear()
    loop.start()
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(loop.forward_backward, "a")
        while loop._queue:
            pass
        waiting = pool.submit(loop.call, lambda: 1)
        while not loop._queue:
            pass
        stopper = threading.Thread(target=loop.stop)
        stopper.start()
        with pytest.raises(Draining):
            waiting.result(5)
        trainer.gate.set()
        assert running.result(5).metrics == {"loss:sum": 1.0}
        stopper.join(5)
    with pytest.raises(Draining):
        loop.call(lambda: 1)
