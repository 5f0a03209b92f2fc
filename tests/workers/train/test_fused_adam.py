"""Steps in company against the same steps alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from openrl.domain.errors import CallerError, EngineBusy, GradientNotFinite, UpdateNotFinite
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.base import BaseModel
from workers.train import adam, fused_adam
from workers.train.run_state import RunState

PARAMS = (
    AdamParams(learning_rate=1e-3),
    AdamParams(learning_rate=1e-2, beta1=0.8, beta2=0.99, eps=1e-8, weight_decay=0.1, grad_clip_norm=0.5),
    AdamParams(learning_rate=3e-4, beta1=0.0, grad_clip_norm=1e6),
    AdamParams(learning_rate=1e-1, weight_decay=0.01, eps=1e-3),
)
RANKS = (1, 2, 4, 2)


@dataclass
class Crowd:
    """The same runs twice, of different sizes, moments and step counts."""

    apart: list[RunState]
    together: list[RunState]

    def give(self, seed: int, spoiled: dict[int, float] | None = None) -> None:
        """A random gradient for every run; those named get a value in it."""
        generator = torch.Generator().manual_seed(seed)
        for number, (one, other) in enumerate(zip(self.apart, self.together, strict=True)):
            grad = torch.randn(one.weights.numel(), generator=generator)
            if spoiled and number in spoiled:
                grad[3] = spoiled[number]
            one.grad, other.grad = grad.clone(), grad

    def step(self, params: Sequence[AdamParams]) -> tuple[list[fused_adam.Outcome], list[fused_adam.Outcome]]:
        alone = [fused_adam._alone(step) for step in zip(self.apart, params, strict=True)]
        return alone, fused_adam.steps(list(zip(self.together, params, strict=True)))

    def check_same(self) -> None:
        for one, other in zip(self.apart, self.together, strict=True):
            assert torch.equal(one.weights, other.weights)
            assert torch.equal(one.m, other.m) and torch.equal(one.v, other.v)
            assert one.step == other.step and one.grad is None and other.grad is None


@pytest.fixture(params=[1 << 16, 7000], ids=["one group", "some groups"])
def crowd(base: BaseModel, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    monkeypatch.setattr(fused_adam, "TOGETHER_ON_CPU", request.param)

    def runs() -> list[RunState]:
        made = [RunState.fresh(base.layout, LoraSpec(rank=rank, seed=rank)) for rank in RANKS]
        for number, run in enumerate(made):
            for _ in range(number):  # their step counts differ
                run.grad = torch.full_like(run.weights, 0.1)
                adam.step(run, PARAMS[number])
        return made

    return Crowd(runs(), runs())


def test_steps_together_are_the_same_to_the_bit_as_steps_alone(crowd: Crowd) -> None:
    for seed in range(4):
        crowd.give(seed)
        alone, together = crowd.step(PARAMS)
        assert together == alone
        crowd.check_same()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_a_gradient_that_is_not_finite_fails_its_own_run_alone(crowd: Crowd, value: float) -> None:
    crowd.give(1, {2: value})
    _, together = crowd.step(PARAMS)
    assert [isinstance(each, GradientNotFinite) for each in together] == [False, False, True, False]
    crowd.check_same()
    assert [run.step for run in crowd.together] == [1, 2, 2, 4]


def test_an_update_that_is_not_finite_fails_its_own_run_alone(crowd: Crowd) -> None:
    crowd.give(1)
    params = [replace(each, learning_rate=1e300) if number == 1 else each for number, each in enumerate(PARAMS)]
    _, together = crowd.step(params)
    assert [isinstance(each, UpdateNotFinite) for each in together] == [False, True, False, False]
    crowd.check_same()
    assert [run.step for run in crowd.together] == [1, 1, 3, 4]


def test_when_every_run_fails_nothing_changes(crowd: Crowd) -> None:
    crowd.give(1, dict.fromkeys(range(4), torch.nan))
    _, together = crowd.step(PARAMS)
    assert all(isinstance(each, CallerError) for each in together)
    crowd.check_same()


def test_a_run_without_a_gradient_takes_no_step(crowd: Crowd) -> None:
    crowd.give(1)
    crowd.apart[0].grad = crowd.together[0].grad = None
    alone, together = crowd.step(PARAMS)
    assert together == alone
    first = together[0]
    assert isinstance(first, dict) and (first["applied"], first["step"]) == (0.0, 0.0)
    crowd.check_same()


@pytest.mark.parametrize("operation", ["_foreach_mul", "_foreach_lerp", "_foreach_div"])
def test_a_group_that_finds_no_memory_steps_one_by_one(
    crowd: Crowd, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.give(1)
    monkeypatch.setattr(torch, operation, ran_out)
    alone, together = crowd.step(PARAMS)
    assert together == alone
    crowd.check_same()


def test_a_run_that_finds_no_memory_keeps_its_gradient_and_the_others_step(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.give(1)
    run = crowd.together[2]
    before = run.mapped(torch.clone)
    numel, lerp = run.weights.numel(), torch.lerp
    monkeypatch.setattr(torch, "_foreach_lerp", ran_out)
    monkeypatch.setattr(torch, "lerp", lambda m, *others: ran_out() if len(m) == numel else lerp(m, *others))
    outcomes = fused_adam.steps(list(zip(crowd.together, PARAMS, strict=True)))
    assert [isinstance(each, EngineBusy) for each in outcomes] == [False, False, True, False]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(run.vectors, before.vectors, strict=True))
    monkeypatch.undo()
    crowd.step(PARAMS[2:3] + PARAMS[3:] + PARAMS[:2])  # the gradient is still there
    assert run.step == before.step + 1 and run.grad is None


def ran_out(*_: object) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_groups_hold_no_more_than_they_may_and_a_large_run_is_alone() -> None:
    assert list(fused_adam.groups([3, 3, 3, 20, 1, 9], 9)) == [[0, 1, 2], [3], [4], [5]]
    assert list(fused_adam.groups([], 9)) == []
