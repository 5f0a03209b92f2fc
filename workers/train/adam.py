"""AdamW on one run's flat vectors. Knows runs only as tensors."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from openrl.domain.errors import GradientNotFinite, UpdateNotFinite
from openrl.domain.run import AdamParams
from workers.train.run_state import Trained

#: Vectors of more elements, by device, are updated in pieces: on a CPU, longer ones leave its cache between operations.
WHOLE = {"cpu": 2**22, "cuda": 2**27, "mps": 2**26}
PIECE = {"cpu": 2**18, "cuda": 2**26, "mps": 2**25}


@torch.no_grad()
def step(run: Trained, params: AdamParams) -> dict[str, float]:
    """One update with bias correction and decoupled weight decay; the gradient is used up. Returns the step's metrics.

    Without a gradient nothing changes and no step is counted, as in PyTorch; `applied` then is 0.
    Raises GradientNotFinite when the gradient (or its norm in float32) is not finite, and UpdateNotFinite when the
    weights' change is not: weights, moments and step stay as they were, and the gradient is dropped, so that the run
    can go on with its next batch.
    """
    grad, run.grad = run.grad, None
    if grad is None:
        return metrics_of(run, params, grad_norm=0.0, update_norm=0.0, applied=0.0)
    norm = float(torch.linalg.vector_norm(grad))
    if not math.isfinite(norm):
        raise GradientNotFinite("optim_step")
    if 0 < params.grad_clip_norm < norm:
        grad.mul_(params.grad_clip_norm / norm)
    update_norm = _update(run, grad, params)
    return metrics_of(run, params, grad_norm=norm, update_norm=update_norm)


def _update(run: Trained, grad: Tensor, params: AdamParams) -> float:
    """Moves moments and weights, all or none; returns the norm of the change. Long vectors are not held once more but
    computed in pieces, twice: first the change's norm, then the change."""
    device = grad.device.type
    if len(grad) <= WHOLE[device]:
        moved = _moved(run, grad, slice(None), params)
        norm = _finite(moved.change)
        run.weights.sub_(moved.change)
        run.m, run.v = moved.m, moved.v
    else:
        pieces = [slice(start, start + PIECE[device]) for start in range(0, len(grad), PIECE[device])]
        norm = math.hypot(*(_finite(_moved(run, grad, piece, params).change) for piece in pieces))
        for piece in pieces:
            moved = _moved(run, grad, piece, params)
            run.weights[piece].sub_(moved.change)
            run.m[piece].copy_(moved.m), run.v[piece].copy_(moved.v)
    run.step += 1
    return norm


def _finite(change: Tensor) -> float:
    """Its norm. Raises UpdateNotFinite."""
    norm = float(torch.linalg.vector_norm(change))
    if not math.isfinite(norm):
        raise UpdateNotFinite
    return norm


class _Moved(NamedTuple):
    """A piece of the moments after the step, and what the step takes off the weights."""

    m: Tensor
    v: Tensor
    change: Tensor


def _moved(run: Trained, whole: Tensor, piece: slice, params: AdamParams) -> _Moved:
    step, grad = run.step + 1, whole[piece]
    m = torch.lerp(run.m[piece], grad, 1 - params.beta1)
    v = torch.mul(run.v[piece], params.beta2).addcmul_(grad, grad, value=1 - params.beta2)
    scale = in_range(params.learning_rate / (1 - params.beta1**step))
    spread = torch.div(v, 1 - params.beta2**step).sqrt_().add_(in_range(params.eps))
    change = torch.div(m, spread, out=spread).mul_(scale)
    if params.weight_decay:
        change.add_(run.weights[piece], alpha=in_range(params.learning_rate * params.weight_decay))
    return _Moved(m, v, change)


def in_range(value: float) -> float:
    """Infinite where it is beyond float32: torch takes that, and refuses some of what is in between."""
    return math.copysign(math.inf, value) if abs(value) > torch.finfo(torch.float32).max else value


def metrics_of(
    run: Trained, params: AdamParams, *, grad_norm: float, update_norm: float, applied: float = 1.0
) -> dict[str, float]:
    """Of a step that was just taken."""
    return {
        "grad_norm": grad_norm,
        "update_norm": update_norm,
        "learning_rate": params.learning_rate,
        "step": float(run.step),
        "applied": applied,
    }
