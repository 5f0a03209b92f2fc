"""Groups of rollouts as what `forward_backward` of the tinker SDK takes, with advantages within each group.

Needs the `tinker` package, and only when it is called.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, Final, Literal

from openrl.client.errors import TinkerMissing
from openrl.client.groups import Group, Rollout

if TYPE_CHECKING:
    import tinker

#: Rewards that differ by less, of 1 or of the largest, are alike: dividing by their spread would make rounding count.
ALIKE: Final = 1e-9

Advantages = Literal["grpo", "dr_grpo"] | Callable[[Sequence[float]], Sequence[float]]
Weights = Callable[[Rollout], float | Sequence[float]]


def to_datums(
    groups: Iterable[Group],
    *,
    advantages: Advantages = "grpo",
    keep_flat: bool = False,
    weights: Weights | None = None,
) -> "list[tinker.Datum]":
    """A datum for each rollout, for the losses `importance_sampling`, `ppo`, `cispo` and `dro`.

    `advantages`: "grpo" is each reward less the group's mean, by the group's standard deviation (of the population);
    "dr_grpo" does not divide; a function gets the rewards of a group and answers as many advantages. Groups in which
    all are 0, as where all rewards are alike, teach nothing and are left out, unless `keep_flat`. `weights` answers a
    factor for a rollout's tokens, or one for each: the advantage is multiplied by it.

    A datum of P prompt tokens and T sampled ones reads all but the last. Its inputs `target_tokens` (int64, what each
    position is to predict), `logprobs` and `advantages` (float32, 0 where a prompt token is predicted) are [P + T - 1].
    Raises TinkerMissing, ValueError."""
    try:
        import_module("tinker")
    except ModuleNotFoundError as error:
        raise TinkerMissing from error
    return [
        _datum(group, rollout, _by_token(rollout, advantage, weights))
        for group in groups
        for rollout, advantage in _taught(group, advantages, keep_flat)
        if rollout.tokens
    ]


def _taught(group: Group, advantages: Advantages, keep_flat: bool) -> Iterator[tuple[Rollout, float]]:
    values = _values(group, advantages)
    if len(values) != len(group.rollouts) or not all(map(math.isfinite, values)):
        raise ValueError(f"group {group.index}: {len(group.rollouts)} finite advantages are needed, not {values}")
    if keep_flat or any(values):
        yield from zip(group.rollouts, values, strict=True)


def _values(group: Group, advantages: Advantages) -> list[float]:
    rewards = group.rewards
    if callable(advantages):
        return [float(value) for value in advantages(rewards)] if rewards else []
    if advantages not in ("grpo", "dr_grpo"):
        raise ValueError(f"advantages={advantages!r}; give 'grpo', 'dr_grpo' or a function")
    if len(group.rollouts) + len(group.dropped) == 1:
        problem = "is of one rollout, which is better than none; ask for groups of 2 or more, or give a function"
        raise ValueError(f"advantages={advantages!r}: group {group.index} {problem}")
    if not rewards or max(rewards) - min(rewards) <= ALIKE * max(1.0, *map(abs, rewards)):
        return [0.0] * len(rewards)
    mean, spread = fmean(rewards), pstdev(rewards) if advantages == "grpo" else 1.0
    return [(reward - mean) / spread for reward in rewards]


def _by_token(rollout: Rollout, advantage: float, weights: Weights | None) -> list[float]:
    factors = 1.0 if weights is None else weights(rollout)
    if isinstance(factors, int | float):
        factors = [float(factors)] * len(rollout.tokens)
    if len(factors) != len(rollout.tokens):
        raise ValueError(f"weights answered {len(factors)} factors for a rollout of {len(rollout.tokens)} tokens")
    return [advantage * factor for factor in factors]


def _datum(group: Group, rollout: Rollout, advantages: list[float]) -> "tinker.Datum":
    import numpy as np
    import tinker

    unsampled = [0.0] * (len(group.prompt_tokens) - 1)
    tokens = [*group.prompt_tokens, *rollout.tokens]
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "target_tokens": np.array(tokens[1:], dtype=np.int64),
        "logprobs": np.array([*unsampled, *rollout.logprobs], dtype=np.float32),
        "advantages": np.array([*unsampled, *advantages], dtype=np.float32),
    }
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={name: tinker.TensorData.from_numpy(array) for name, array in inputs.items()},
    )
