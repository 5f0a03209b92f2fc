"""AdamW steps of several runs at once: each operation goes over a list of flat vectors, with a number for each.

The arithmetic is that of `adam`, operation by operation, so that a run's step is the same in company as alone. It saves
what an operation costs beside its numbers, and the waiting for a device's answers: two for a group, where single steps
take two for each run. A group that finds no memory changes nothing, and its runs step one by one.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from openrl.domain.errors import CallerError, EngineBusy, GradientNotFinite, UpdateNotFinite
from openrl.domain.run import AdamParams
from workers.model.allocation import ran_out
from workers.train import adam
from workers.train.run_state import RunState

Step = tuple[RunState, AdamParams]
Outcome = dict[str, float] | CallerError | EngineBusy

#: Numbers per vector that a group of runs may hold together; a larger run is stepped alone. A CPU gains only while all
#: vectors of a group stay in its cache; elsewhere the bound is for memory: a group needs five vectors beside its runs.
TOGETHER_ON_CPU, TOGETHER = 1 << 16, 1 << 24


def steps(asked: Sequence[Step]) -> list[Outcome]:
    """`adam.step` of each run, in order, with the error that it would raise in place of its metrics, EngineBusy where
    there was no memory for it; no run's error touches another's step. No run may be named twice."""
    assert len({id(run) for run, _ in asked}) == len(asked), "a run takes one step at a time"
    on_cpu = all(run.weights.device.type == "cpu" for run, _ in asked)
    outcomes: list[Outcome] = []
    for group in groups([run.weights.numel() for run, _ in asked], TOGETHER_ON_CPU if on_cpu else TOGETHER):
        chosen = [asked[number] for number in group]
        outcomes += _together(chosen) or map(_alone, chosen)
    return outcomes


def groups(sizes: Sequence[int], together: int) -> Iterator[list[int]]:
    """Numbers of the sizes, in order, in groups of at most `together`; a larger one is a group by itself."""
    group: list[int] = []
    held = 0
    for number, size in enumerate(sizes):
        if group and held + size > together:
            yield group
            group, held = [], 0
        group.append(number)
        held += size
    if group:
        yield group


def _alone(step: Step) -> Outcome:
    try:
        return adam.step(*step)
    except CallerError as error:
        return error
    except Exception as error:
        if not ran_out(error):
            raise
        return EngineBusy("memory ran out before an optimizer step")


def _together(asked: Sequence[Step]) -> list[Outcome] | None:
    """None, and nothing done, where there is nobody to share with or memory ended."""
    try:
        return _group(asked) if len(asked) > 1 else None
    except Exception as error:
        if not ran_out(error):
            raise
        return None


@torch.no_grad()
def _group(asked: Sequence[Step]) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    grads: dict[int, Tensor] = {}
    for number, step in enumerate(asked):
        if (grad := step[0].grad) is None:
            outcomes[number] = _alone(step)
        else:
            grads[number] = grad
    norms = _norms(grads)
    outcomes |= {number: GradientNotFinite("optim_step") for number, norm in norms.items() if not math.isfinite(norm)}
    good = {number: grad for number, grad in grads.items() if number not in outcomes}
    clipped = _clipped([(grad, norms[number], asked[number][1].grad_clip_norm) for number, grad in good.items()])
    for number, update_norm in _update({number: asked[number] for number in good}, clipped).items():
        if math.isfinite(update_norm):
            outcomes[number] = adam.metrics_of(*asked[number], grad_norm=norms[number], update_norm=update_norm)
        else:
            outcomes[number] = UpdateNotFinite()
    for number in grads:
        asked[number][0].grad = None
    return [outcomes[number] for number in range(len(asked))]


def _clipped(grads: Sequence[tuple[Tensor, float, float]]) -> list[Tensor]:
    """In the place of each vector whose norm is beyond its limit a smaller one; 0 is no limit."""
    scales = {place: limit / norm for place, (_, norm, limit) in enumerate(grads) if 0 < limit < norm}
    found = [grad for grad, _, _ in grads]
    smaller = torch._foreach_mul([found[place] for place in scales], list(scales.values())) if scales else ()
    for place, grad in zip(scales, smaller, strict=True):
        found[place] = grad
    return found


def _update(asked: dict[int, Step], grads: list[Tensor]) -> dict[int, float]:
    """Moves moments and weights, all of a run or none; answers the norms of the changes."""
    if not asked:
        return {}
    runs, params = [run for run, _ in asked.values()], [each for _, each in asked.values()]
    moments = torch._foreach_lerp([run.m for run in runs], grads, [1 - each.beta1 for each in params])
    squares = torch._foreach_mul([run.v for run in runs], [each.beta2 for each in params])
    torch._foreach_addcmul_(squares, grads, grads, [1 - each.beta2 for each in params])
    changes = dict(zip(asked, _changes(list(asked.values()), moments, squares), strict=True))
    norms = _norms(changes)
    for number, run, m, v in zip(asked, runs, moments, squares, strict=True):
        if math.isfinite(norms[number]):
            run.weights.sub_(changes[number])
            run.m, run.v, run.step = m, v, run.step + 1
    return norms


def _changes(asked: Sequence[Step], moments: Sequence[Tensor], squares: Sequence[Tensor]) -> list[Tensor]:
    """What is to be taken from the weights: rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), and
    rate * decay * weights."""
    spread = torch._foreach_div(tuple(squares), [1 - each.beta2 ** (run.step + 1) for run, each in asked])
    torch._foreach_sqrt_(spread)
    torch._foreach_add_(spread, [adam.in_range(each.eps) for _, each in asked])
    changes = torch._foreach_div(tuple(moments), spread)
    scales = [each.learning_rate / (1 - each.beta1 ** (run.step + 1)) for run, each in asked]
    torch._foreach_mul_(changes, [adam.in_range(scale) for scale in scales])
    for change, (run, each) in zip(changes, asked, strict=True):
        if each.weight_decay:
            change.add_(run.weights, alpha=adam.in_range(each.learning_rate * each.weight_decay))
    return list(changes)


def _norms(vectors: dict[int, Tensor]) -> dict[int, float]:
    """L2 norms, fetched from the device at once."""
    found = torch.stack(torch._foreach_norm(list(vectors.values()))).tolist() if vectors else []
    return dict(zip(vectors, found, strict=True))
