"""The loss of a pass: every token of every batch in it, flat, with the loss its batch asked for.

Batches with the same loss key are computed together; what is said of a batch (its loss, its metrics) is summed
over its own tokens. Knows no model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from openrl.domain.datum import Datum, Loss
from openrl.domain.losses import TARGETS, filled_config
from openrl.domain.tensor import Tensor as Array
from workers.model.arrays import joined
from workers.train.losses import POLICY_LOSSES, TokenInputs, cross_entropy

#: A loss and its full config, sortable: batches with equal keys are computed together.
LossKey = tuple[Loss, tuple[tuple[str, float], ...]]


def loss_key(loss: Loss, config: Mapping[str, float]) -> LossKey:
    """`config` may leave out what has a default."""
    return loss, tuple(sorted(filled_config(loss, config).items()))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive datums of a pass that share a loss key; tokens `start` to `stop` of the pass."""

    start: int
    stop: int
    key: LossKey
    factor: Tensor  #: [m, K], by which each target's loss counts
    given: TokenInputs | None  #: None for cross_entropy
    batch: Tensor  #: int64 [m], the batch each token belongs to

    def losses(self, lp: Tensor, low: int = 0, high: int | None = None) -> Tensor:
        """Each target's loss, [n, K] or [n], for log-probabilities [n, K] of this stretch's tokens `low` to `high`."""
        factor = self.factor[low:high]
        if self.given is None:
            return cross_entropy(lp, factor)
        loss, config = self.key
        given = self.given.map(lambda each: each[low:high])
        return POLICY_LOSSES[loss](lp[:, 0], given, dict(config)) * factor[:, 0]

    def statistics(self, lp: Tensor) -> dict[str, Tensor]:
        """Sums by batch are taken of these, each [m] float64; `active` tokens are those that a policy loss counts."""
        sums = {"loss": self.losses(lp).double().reshape(len(lp), -1).sum(1), "tokens": torch.ones(len(lp)).double()}
        if self.given is None:
            return sums | {"weights": self.factor.double().sum(1)}
        gap = (lp[:, 0] - self.given.logprobs).double()
        active = (self.factor[:, 0] != 0) & ((self.given.advantages != 0) | (self.given.logprobs != 0))
        ratio = gap.exp()
        clipped = (ratio < self.given.clip_low) | (ratio > self.given.clip_high)
        zero = torch.zeros_like(gap)
        return sums | {
            "active": active.double(),
            "ratio": torch.where(active, ratio, zero),
            "kl": torch.where(active, -gap, zero),
            "clipped": (active & clipped).double(),
        }

    def sorted(self, order: Tensor) -> "Stretch":
        """With its tokens in another order, int64 [M] over the whole pass, which keeps each batch's place."""
        mine = order[self.start : self.stop] - self.start
        given = None if self.given is None else self.given.map(lambda each: each[mine])
        return replace(self, factor=self.factor[mine], given=given)

    def on(self, device: torch.device) -> "Stretch":
        given = None if self.given is None else self.given.map(lambda each: each.to(device))
        return replace(self, factor=self.factor.to(device), given=given)


class Objective:
    """Losses of all tokens of a pass. `targets` is int64 [M, K]; where a datum has fewer choices, the rest count 0."""

    def __init__(
        self, data: Sequence[tuple[int, Datum, LossKey]], device: torch.device, order: Tensor | None = None
    ) -> None:
        """`data` in the order of the pass: batch number, datum, loss key. Equal keys should stand together.

        `order` int64 [M] on the CPU, if given, sorts the tokens within each batch; all else is in that order then.
        """
        choices = max(_choices(datum) for _, datum, _ in data)
        targets = _wide([datum.inputs[TARGETS] for _, datum, _ in data], choices, torch.int64)
        self.targets = (targets if order is None else targets[order]).to(device)
        stretches = _stretches(data, choices)
        self._here = list(stretches) if order is None else [stretch.sorted(order) for stretch in stretches]
        self._there = [stretch.on(device) for stretch in self._here]

    def gradient(self, lp: Tensor, start: int) -> Tensor:
        """d loss / d lp for log-probabilities [n, K] of the pass's tokens from `start` on."""
        leaf = lp.detach().requires_grad_()
        stop = start + len(lp)
        with torch.enable_grad():
            total = leaf.new_zeros(())
            for stretch in self._there:
                low, high = max(start, stretch.start), min(stop, stretch.stop)
                if low < high:
                    part = leaf[low - start : high - start]
                    total = total + stretch.losses(part, low - stretch.start, high - stretch.start).sum()
            return torch.autograd.grad(total, leaf)[0]

    def sums(self, lp: Tensor) -> dict[int, dict[str, float]]:
        """By batch number: the statistics of its tokens, summed; `lp` [M, K] on the CPU."""
        by_batch: dict[int, dict[str, float]] = {}
        for stretch in self._here:
            named = stretch.statistics(lp[stretch.start : stretch.stop])
            numbers, place = torch.unique(stretch.batch, return_inverse=True)
            columns = torch.stack(list(named.values()), 1)
            added = columns.new_zeros((len(numbers), len(named))).index_add_(0, place, columns).tolist()
            for number, values in zip(numbers.tolist(), added, strict=True):
                by_batch[number] = dict(zip(named, values, strict=True))
        return by_batch


def metrics_of(sums: Mapping[str, float]) -> dict[str, float]:
    """A batch's metrics under names that the SDK can reduce over chunks: `name:reduction`."""
    metrics = {"loss:sum": sums["loss"], "tokens:sum": sums["tokens"]}
    if "weights" in sums:
        return metrics | {"weights:sum": sums["weights"]}
    active = sums["active"]
    metrics["active_tokens:sum"] = active
    if active:
        metrics |= {
            "ratio_mean:mean": sums["ratio"] / active,
            "kl:mean": sums["kl"] / active,
            "clip_fraction:mean": sums["clipped"] / active,
        }
    return metrics


def _stretches(data: Sequence[tuple[int, Datum, LossKey]], choices: int) -> Iterator[Stretch]:
    start = 0
    for key, grouped in groupby(data, key=lambda item: item[2]):
        numbers, datums = zip(*((number, datum) for number, datum, _ in grouped), strict=True)
        lengths = torch.tensor([datum.length for datum in datums])
        stop = start + int(lengths.sum())
        batch = torch.repeat_interleave(torch.tensor(numbers), lengths)
        if key[0] is Loss.CROSS_ENTROPY:
            factor, given = _wide([datum.inputs["weights"] for datum in datums], choices, torch.float32), None
        else:
            factor, given = _factor(datums, choices), _policy_inputs(datums, dict(key[1]))
        yield Stretch(start, stop, key, factor, given, batch)
        start = stop


def _factor(datums: Sequence[Datum], choices: int) -> Tensor:
    """The product of `weights` and `mask`, each 1 where a datum leaves it out, in the first of K columns."""
    factor = torch.zeros((sum(datum.length for datum in datums), choices))
    factor[:, 0] = 1.0
    for name in ("weights", "mask"):
        if any(name in datum.inputs for datum in datums):
            factor[:, 0] *= torch.cat([_per_token(datum, name, 1.0) for datum in datums])
    return factor


def _policy_inputs(datums: Sequence[Datum], config: Mapping[str, float]) -> TokenInputs:
    low, high = (_bound(datums, name, config) for name in ("clip_low_threshold", "clip_high_threshold"))
    return TokenInputs(
        logprobs=joined([datum.inputs["logprobs"] for datum in datums], torch.float32),
        advantages=joined([datum.inputs["advantages"] for datum in datums], torch.float32),
        clip_low=low,
        clip_high=high,
    )


def _bound(datums: Sequence[Datum], name: str, config: Mapping[str, float]) -> Tensor:
    """A bound of the ratio for every token: the datum's own, else the config's, else one that never binds."""
    default = config.get(name, 0.0 if name == "clip_low_threshold" else torch.inf)
    if not any(name in datum.inputs for datum in datums):
        return torch.full((sum(datum.length for datum in datums),), default)
    return torch.cat([_per_token(datum, name, default) for datum in datums])


def _per_token(datum: Datum, name: str, default: float) -> Tensor:
    given = datum.inputs.get(name)
    if given is None:
        return torch.full((datum.length,), default)
    return joined([given], torch.float32).expand(datum.length)


def _choices(datum: Datum) -> int:
    """K, the number of targets per position."""
    return datum.inputs[TARGETS].elements // datum.length


def _wide(parts: Sequence[Array], choices: int, dtype: torch.dtype) -> Tensor:
    """Arrays [N] or [N, k] one below another as [M, choices]; missing columns are zero."""
    if all(len(part.shape) == 1 or part.shape[1] == 1 for part in parts) and choices == 1:
        return joined(parts, dtype).unsqueeze(1)
    whole = torch.zeros((sum(part.shape[0] for part in parts), choices), dtype=dtype)
    start = 0
    for part in parts:
        stop = start + part.shape[0]
        block = joined([part], dtype).view(part.shape[0], -1)
        whole[start:stop, : block.shape[1]] = block
        start = stop
    return whole
