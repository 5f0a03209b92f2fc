"""AdamW on one run's flat vectors. Knows runs only as tensors."""

import torch

from openrl.domain.errors import GradientNotFinite
from openrl.domain.run import AdamParams
from workers.train.run_state import RunState


@torch.no_grad()
def step(run: RunState, params: AdamParams) -> dict[str, float]:
    """One update with bias correction and decoupled weight decay; the gradient is used up. Returns the step's metrics.

    Without a gradient nothing changes and no step is counted, as in PyTorch; `applied` then is 0.
    Raises GradientNotFinite when the gradient (or its norm in float32) is not finite: weights, moments and step stay as
    they were, and the gradient is dropped, so that the run can go on with its next batch.
    """
    grad, run.grad = run.grad, None
    if grad is None:
        return _metrics(run, params, grad_norm=0.0, update_norm=0.0, applied=0.0)
    norm = float(torch.linalg.vector_norm(grad))
    if not torch.isfinite(torch.tensor(norm)):
        raise GradientNotFinite("optim_step")
    if 0 < params.grad_clip_norm < norm:
        grad.mul_(params.grad_clip_norm / norm)
    update_norm = _update(run, grad, params)
    return _metrics(run, params, grad_norm=norm, update_norm=update_norm, applied=1.0)


def _update(run: RunState, grad: torch.Tensor, params: AdamParams) -> float:
    """Moves moments and weights; returns the norm of the change."""
    run.step += 1
    run.m.lerp_(grad, 1 - params.beta1)
    run.v.mul_(params.beta2).addcmul_(grad, grad, value=1 - params.beta2)
    scale = params.learning_rate / (1 - params.beta1**run.step)
    spread = torch.div(run.v, 1 - params.beta2**run.step, out=grad).sqrt_().add_(params.eps)  # grad is used up
    change = torch.div(run.m, spread, out=spread).mul_(scale)
    if params.weight_decay:
        change.add_(run.weights, alpha=params.learning_rate * params.weight_decay)
    run.weights.sub_(change)
    return float(torch.linalg.vector_norm(change))


def _metrics(
    run: RunState, params: AdamParams, *, grad_norm: float, update_norm: float, applied: float
) -> dict[str, float]:
    return {
        "grad_norm": grad_norm,
        "update_norm": update_norm,
        "learning_rate": params.learning_rate,
        "step": float(run.step),
        "applied": applied,
    }
