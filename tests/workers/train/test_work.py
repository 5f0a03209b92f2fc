"""Which turns reach the engine; the engine itself is a double that counts them."""

from typing import Any

import pytest

from openrl.domain.errors import LeaseLost
from openrl.domain.ids import OpId, RunId, TenantId
from openrl.domain.op import CreateRun, OptimStep, TrainOp
from openrl.domain.outcome import StepResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.train.work import TrainWork

RUN = RunId("r")


class CountingEngine:
    def __init__(self) -> None:
        self.runs: set[RunId] = set()
        self.steps = 0

    def has(self, run: RunId) -> bool:
        return run in self.runs

    def create(self, run: RunId, lora: LoraSpec) -> None:
        self.runs.add(run)

    def optim_step(self, run: RunId, adam: AdamParams) -> dict[str, float]:
        self.steps += 1
        return {"step": float(self.steps)}


class AtOnce:
    """A device loop that runs calls where they are made."""

    def call(self, function: Any) -> Any:
        return function()


def _work() -> tuple[TrainWork, CountingEngine]:
    engine: Any = CountingEngine()
    loop: Any = AtOnce()
    work = TrainWork(engine, loop, depot=None, catalog=None)  # type: ignore[arg-type]  # nothing is saved here
    work(
        TrainOp(
            id=OpId("0"),
            tenant=TenantId("t"),
            run=RUN,
            turn=0,
            action=CreateRun(base_model="tiny", lora=LoraSpec(rank=4)),
        )
    )
    return work, engine


def _step(turn: int) -> TrainOp:
    return TrainOp(id=OpId(str(turn)), tenant=TenantId("t"), run=RUN, turn=turn, action=OptimStep(adam=AdamParams()))


def test_a_turn_that_comes_twice_is_applied_once() -> None:
    work, engine = _work()
    assert work(_step(1)) == work(_step(1)) == StepResult(metrics={"step": 1.0})
    assert engine.steps == 1


def test_a_thread_that_slept_through_its_turn_does_not_apply_it_after_the_next() -> None:
    work, engine = _work()
    work(_step(1))
    work(_step(2))
    with pytest.raises(LeaseLost):
        work(_step(1))
    assert engine.steps == 2
