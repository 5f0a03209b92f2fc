import torch

from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.train.run_state import RunState, first_weights


def test_a_fresh_adapter_is_uniform_in_a_and_zero_in_b(base: BaseModel) -> None:
    shape = LoraShape.of(base.layout, LoraSpec(rank=8))
    flat = first_weights(shape, 3)
    for target in shape.targets:
        at_a, at_b = shape.parts(target.name)
        bound = target.in_features**-0.5
        assert not flat[at_b].any()
        assert 0.9 * bound < float(flat[at_a].abs().max()) <= bound


def test_a_seed_decides_the_weights_and_none_is_random_but_kept(base: BaseModel) -> None:
    seeded = [RunState.fresh(base.layout, LoraSpec(rank=2, seed=1)).weights for _ in range(2)]
    assert torch.equal(*seeded)
    free = [RunState.fresh(base.layout, LoraSpec(rank=2)) for _ in range(2)]
    assert not torch.equal(free[0].weights, free[1].weights)
    assert free[0].seed is not None
    again = RunState.fresh(base.layout, LoraSpec(rank=2, seed=free[0].seed))
    assert torch.equal(again.weights, free[0].weights)


def test_gradients_add_up(base: BaseModel) -> None:
    run = RunState.fresh(base.layout, LoraSpec(rank=2))
    assert run.grad is None
    for _ in range(2):
        run.add_grad(torch.ones(run.shape.size))
    assert run.grad is not None and bool((run.grad == 2.0).all())
