"""A pack: the batches of several runs in common passes over the base model. Knows batches by number and their adapters.

Every batch has its own entry in a stack, even when two belong to one run. So what one batch does to its gradient, be it
NaN, never touches another's.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, groupby

import torch
from torch import Tensor

from openrl.domain import tensor
from openrl.domain.datum import Datum
from openrl.domain.losses import TARGETS
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.lora import AdapterStack, Mix, MixPart
from workers.train.arrays import floats, joined
from workers.train.batch import Batch
from workers.train.logprobs import HeadAdapter, target_logprobs
from workers.train.objective import Objective
from workers.train.packing import Row
from workers.train.run_state import RunState


class Pack:
    """Batches that run together, all forward only or all with gradients. Results pile up pass by pass."""

    def __init__(
        self, base: BaseModel, members: Sequence[tuple[Batch, RunState]], *, train: bool, recompute_tokens: int
    ) -> None:
        self._base, self._train, self._recompute_tokens = base, train, recompute_tokens
        self._batches = [batch for batch, _ in members]
        self._settings = [batch.settings for batch in self._batches]
        self.logprobs: list[list[tensor.Tensor | None]] = [[None] * len(batch.data) for batch in self._batches]
        self.sums: list[defaultdict[str, float]] = [defaultdict(float) for _ in members]
        self._place: list[tuple[int, int]] = []  #: by batch: number of its stack, entry in it
        self._stacks = self._stacked([run for _, run in members])

    def rows(self) -> list[Row]:
        return [
            Row(number, place, datum.length)
            for number, batch in enumerate(self._batches)
            for place, datum in enumerate(batch.data)
        ]

    def run(self, rows: Sequence[Row]) -> None:
        """One pass over `rows`: log-probabilities and sums are kept, gradients added to the stacks."""
        # Rows of one adapter, and tokens of one loss, stand together: they are computed as blocks.
        rows = sorted(
            rows, key=lambda row: (self._place[row.batch][0], self._settings[row.batch], row.batch, row.place)
        )
        data = [self._batches[row.batch].data[row.place] for row in rows]
        objective = Objective(
            [(row.batch, datum, self._settings[row.batch]) for row, datum in zip(rows, data, strict=True)],
            self._base.device,
        )
        lp = self._compute(rows, data, objective).cpu()
        for number, sums in objective.sums(lp).items():
            for name, value in sums.items():
                self.sums[number][name] += value
        self._keep(rows, data, lp)

    def gradients(self) -> list[Tensor]:
        """By batch, flat [size] float32; NaN or infinite where something in the batch was."""
        return [self._grad(stack)[entry] for stack, entry in self._entries()]

    def finite(self) -> list[bool]:
        """By batch, whether its loss and all of its gradient are."""
        checks = [self._grad(stack).sum(1).isfinite().tolist() for stack in self._stacks]
        return [
            bool(checks[stack][entry]) and abs(self.sums[number]["loss"]) < float("inf")
            for number, (stack, entry) in enumerate(self._place)
        ]

    def _compute(self, rows: Sequence[Row], data: Sequence[Datum], objective: Objective) -> Tensor:
        """Log-probabilities [M, K] of all targets of the pass; with gradients also the backward pass."""
        ids, inside = self._padded(data)
        recompute = self._train and ids.numel() > self._recompute_tokens
        base = self._base
        with base.mixed(self._mix(rows)), base.recomputing(recompute), torch.set_grad_enabled(self._train):
            hidden = base.hidden(ids)
            real = hidden.detach().flatten(0, 1) if inside is None else hidden.detach()[inside]
            gradient = objective.gradient if self._train else None
            lp, slope = target_logprobs(base, real, objective.targets, self._on_head(rows), gradient)
            if slope is not None and hidden.requires_grad:
                torch.autograd.backward([hidden], [_spread(slope, inside, hidden)])
        return lp

    def _padded(self, data: Sequence[Datum]) -> tuple[Tensor, Tensor | None]:
        """Input ids [B, T] padded on the right, and where real tokens stand, bool [B, T], or None for everywhere.

        Padding needs no attention mask: attention is causal, so real tokens never see what comes after them.
        """
        lengths = [datum.length for datum in data]
        longest = max(lengths)
        flat = joined([datum.tokens for datum in data], torch.int64)
        if min(lengths) == longest:
            return flat.view(-1, longest).to(self._base.device), None
        inside = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
        ids = torch.zeros(inside.shape, dtype=torch.int64).masked_scatter_(inside, flat)
        return ids.to(self._base.device), inside.to(self._base.device)

    def _mix(self, rows: Sequence[Row]) -> Mix:
        parts = []
        for number, stack in enumerate(self._stacks):
            mine = [at for at, row in enumerate(rows) if self._place[row.batch][0] == number]
            if not mine:
                continue
            index = torch.tensor([self._place[rows[at].batch][1] for at in mine])
            parts.append(MixPart(stack, None if len(mine) == len(rows) else torch.tensor(mine), index))
        return Mix(tuple(parts))

    def _on_head(self, rows: Sequence[Row]) -> list[HeadAdapter]:
        """The adapters that change the head, each with the tokens of its batch."""
        found, start = [], 0
        for number, group in groupby(rows, key=lambda row: row.batch):
            stop = start + sum(row.length for row in group)
            stack, entry = self._entry(number)
            adapter = self._head_adapter(stack, entry, start, stop)
            found += [] if adapter is None else [adapter]
            start = stop
        return found

    def _head_adapter(self, stack: AdapterStack, entry: int, start: int, stop: int) -> HeadAdapter | None:
        name = self._base.unembed.name
        pair = stack.pair(name)
        if pair is None:
            return None
        a, b = (each[entry].detach().to(self._base.dtype) for each in pair)
        if not self._train:
            return HeadAdapter(start, stop, a, b, stack.shape.scale)
        at_a, at_b = stack.shape.parts(name)
        flat = self._grad(stack)[entry]
        return HeadAdapter(start, stop, a, b, stack.shape.scale, flat[at_a].view(a.shape), flat[at_b].view(b.shape))

    def _keep(self, rows: Sequence[Row], data: Sequence[Datum], lp: Tensor) -> None:
        ends = list(accumulate(row.length for row in rows))
        for row, datum, end in zip(rows, data, ends, strict=True):
            shape = datum.inputs[TARGETS].shape
            choices = 1 if len(shape) == 1 else shape[1]
            self.logprobs[row.batch][row.place] = floats(lp[end - row.length : end, :choices], shape)

    def _stacked(self, runs: Sequence[RunState]) -> list[AdapterStack]:
        """One stack per adapter shape, in the order of first appearance."""
        by_shape: dict[LoraShape, list[Tensor]] = {}
        for run in runs:
            entries = by_shape.setdefault(run.shape, [])
            self._place.append((list(by_shape).index(run.shape), len(entries)))
            entries.append(run.weights)
        if self._train:
            return [AdapterStack.for_training(shape, weights) for shape, weights in by_shape.items()]
        return [AdapterStack(shape, torch.stack(weights)) for shape, weights in by_shape.items()]

    def _entry(self, batch: int) -> tuple[AdapterStack, int]:
        stack, entry = self._place[batch]
        return self._stacks[stack], entry

    def _entries(self) -> list[tuple[AdapterStack, int]]:
        return [self._entry(number) for number in range(len(self._batches))]

    @staticmethod
    def _grad(stack: AdapterStack) -> Tensor:
        assert stack.grad is not None, "gradients are asked of training packs only"
        return stack.grad


def _spread(slope: Tensor, inside: Tensor | None, hidden: Tensor) -> Tensor:
    """`slope` of the real tokens [M, width] in the form of `hidden` [B, T, width]; zero on padding."""
    if inside is None:
        return slope.view(hidden.shape)
    whole = torch.zeros_like(hidden)
    whole[inside] = slope
    return whole
