import pytest
import torch

from openrl.domain.errors import GradientNotFinite, UpdateNotFinite
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.base import BaseModel
from workers.train import adam
from workers.train.run_state import RunState


@pytest.fixture
def run(base: BaseModel) -> RunState:
    return RunState.fresh(base.layout, LoraSpec(rank=2, seed=4))


@pytest.mark.parametrize(
    "params",
    [
        AdamParams(learning_rate=1e-3),
        AdamParams(learning_rate=1e-2, beta1=0.8, beta2=0.99, eps=1e-8, weight_decay=0.1, grad_clip_norm=0.5),
        AdamParams(learning_rate=1e-3, grad_clip_norm=1e6),
    ],
    ids=["default", "all", "loose clip"],
)
def test_steps_equal_pytorchs_adamw(run: RunState, params: AdamParams) -> None:
    leaf = torch.nn.Parameter(run.weights.clone())
    theirs = torch.optim.AdamW(
        [leaf],
        lr=params.learning_rate,
        betas=(params.beta1, params.beta2),
        eps=params.eps,
        weight_decay=params.weight_decay,
    )
    generator = torch.Generator().manual_seed(1)
    for number in range(1, 6):
        grad = torch.randn(run.shape.size, generator=generator)
        leaf.grad = grad.clone()
        norm = torch.nn.utils.clip_grad_norm_([leaf], params.grad_clip_norm or torch.inf)
        before = run.weights.clone()
        theirs.step()
        run.add_grad(grad)
        metrics = adam.step(run, params)
        torch.testing.assert_close(run.weights, leaf.data, rtol=1e-5, atol=1e-6)
        assert metrics["grad_norm"] == pytest.approx(float(norm)) and metrics["step"] == number
        assert metrics["update_norm"] == pytest.approx(float((run.weights - before).norm()), rel=1e-3)
        assert run.grad is None


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_dropped(run: RunState, value: float) -> None:
    run.add_grad(torch.ones(run.shape.size))
    adam.step(run, AdamParams())
    before = [each.clone() for each in (run.weights, run.m, run.v)]
    bad = torch.ones(run.shape.size)
    bad[3] = value
    run.add_grad(bad)
    with pytest.raises(GradientNotFinite):
        adam.step(run, AdamParams())
    assert all(torch.equal(a, b) for a, b in zip(before, (run.weights, run.m, run.v), strict=True))
    assert run.step == 1 and run.grad is None


@pytest.mark.parametrize(
    "params",
    [
        AdamParams(learning_rate=1e300),
        AdamParams(learning_rate=1e-3, eps=0.0),
        AdamParams(learning_rate=1e300, weight_decay=0.1),
    ],
    ids=["huge rate", "no eps", "huge decay"],
)
def test_an_update_that_is_not_finite_changes_nothing_and_the_run_goes_on(run: RunState, params: AdamParams) -> None:
    run.grad = torch.zeros(run.shape.size)
    run.grad[0] = 1.0
    before = [each.clone() for each in (run.weights, run.m, run.v)]
    with pytest.raises(UpdateNotFinite, match="learning_rate"):
        adam.step(run, params)
    assert all(torch.equal(old, new) for old, new in zip(before, (run.weights, run.m, run.v), strict=True))
    assert (run.step, run.grad) == (0, None)
    run.grad = torch.ones(run.shape.size)
    assert adam.step(run, AdamParams())["applied"] == 1.0


def test_without_a_gradient_no_step_is_taken(run: RunState) -> None:
    before = run.weights.clone()
    metrics = adam.step(run, AdamParams(weight_decay=0.5))
    assert metrics["applied"] == 0.0 and metrics["step"] == 0.0 and torch.equal(run.weights, before)
