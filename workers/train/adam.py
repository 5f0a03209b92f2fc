"""AdamW on one run's flat vectors. Knows runs only as tensors."""

import math

import torch
from torch import Tensor

from openrl.domain.errors import GradientNotFinite, UpdateNotFinite
from openrl.domain.run import AdamParams
from workers.train.run_state import RunState


@torch.no_grad()
def step(run: RunState, params: AdamParams) -> dict[str, float]:
    """One update with bias correction and decoupled weight decay; the gradient is used up. Returns the step's metrics.

    Without a gradient nothing changes and no step is counted, as in PyTorch; `applied` then is 0.
    Raises GradientNotFinite when the gradient (or its norm in float32) is not finite, and UpdateNotFinite when the
    weights' change is not: weights, moments and step stay as they were, and the gradient is dropped, so that the run
    can go on with its next batch. Where there is no memory for it, torch's error leaves the gradient too.
    """
    if (grad := run.grad) is None:
        return metrics_of(run, params, grad_norm=0.0, update_norm=0.0, applied=0.0)
    moments = torch.empty_like(run.m), torch.empty_like(run.v)  # all that a step takes
    run.grad = None
    norm = float(torch.linalg.vector_norm(grad))
    if not math.isfinite(norm):
        raise GradientNotFinite("optim_step")
    if 0 < params.grad_clip_norm < norm:
        grad.mul_(params.grad_clip_norm / norm)
    update_norm = _update(run, grad, params, *moments)
    return metrics_of(run, params, grad_norm=norm, update_norm=update_norm)


def _update(run: RunState, grad: Tensor, params: AdamParams, m: Tensor, v: Tensor) -> float:
    """Moves moments and weights, all or none; returns the norm of the change. `m` and `v` are memory for moments."""
    step = run.step + 1
    torch.lerp(run.m, grad, 1 - params.beta1, out=m)
    torch.mul(run.v, params.beta2, out=v).addcmul_(grad, grad, value=1 - params.beta2)
    scale = in_range(params.learning_rate / (1 - params.beta1**step))
    spread = torch.div(v, 1 - params.beta2**step, out=grad).sqrt_().add_(in_range(params.eps))  # grad is used up
    change = torch.div(m, spread, out=spread).mul_(scale)
    if params.weight_decay:
        change.add_(run.weights, alpha=in_range(params.learning_rate * params.weight_decay))
    norm = float(torch.linalg.vector_norm(change))
    if not math.isfinite(norm):
        raise UpdateNotFinite
    run.weights.sub_(change)
    run.m, run.v, run.step = m, v, step
    return norm


def in_range(value: float) -> float:
    """Infinite where it is beyond float32: torch takes that, and refuses some of what is in between."""
    return math.copysign(math.inf, value) if abs(value) > torch.finfo(torch.float32).max else value


def metrics_of(
    run: RunState, params: AdamParams, *, grad_norm: float, update_norm: float, applied: float = 1.0
) -> dict[str, float]:
    """Of a step that was just taken."""
    return {
        "grad_norm": grad_norm,
        "update_norm": update_norm,
        "learning_rate": params.learning_rate,
        "step": float(run.step),
        "applied": applied,
    }
