"""A pack: the batches of several runs in common passes over the base model. Knows batches by number and their adapters.

Every batch has its own adapter view and gradient, even when two belong to one run. So what one batch does to its
gradient, be it NaN, never touches another's.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, groupby
from math import isfinite

import torch
from torch import Tensor

from openrl.domain import tensor
from openrl.domain.datum import Datum
from openrl.domain.losses import TARGETS
from openrl.domain.tensor import DType
from workers.model.arrays import joined, to_domain
from workers.model.base import BaseModel
from workers.model.spans import LoraLayer, Span, SpanMix, TrainingAdapter
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
        self._keys = [batch.loss_key for batch in self._batches]
        self._adapters = [TrainingAdapter(run.shape, run.weights, train=train) for _, run in members]
        shapes = list(dict.fromkeys(run.shape for _, run in members))
        self._order = [(shapes.index(run.shape), batch.loss_key) for batch, run in members]
        self.logprobs: list[list[tensor.Tensor | None]] = [[None] * len(batch.data) for batch in self._batches]
        self.sums: list[defaultdict[str, float]] = [defaultdict(float) for _ in members]

    def rows(self) -> list[Row]:
        return [
            Row(number, place, datum.length)
            for number, batch in enumerate(self._batches)
            for place, datum in enumerate(batch.data)
        ]

    def run(self, rows: Sequence[Row]) -> None:
        """One pass over `rows`: log-probabilities and sums are kept, gradients added to the stacks."""
        # Rows of one adapter, and tokens of one loss, stand together: they are computed as blocks.
        rows = sorted(rows, key=lambda row: (*self._order[row.batch], row.batch, row.place))
        data = [self._batches[row.batch].data[row.place] for row in rows]
        objective = Objective(
            [(row.batch, datum, self._keys[row.batch]) for row, datum in zip(rows, data, strict=True)],
            self._base.device,
        )
        lp = self._compute(rows, data, objective).cpu()
        for number, sums in objective.sums(lp).items():
            for name, value in sums.items():
                self.sums[number][name] += value
        self._keep(rows, data, lp)

    def gradient(self, number: int) -> Tensor | None:
        """Of a batch, flat [size] float32, for the caller to keep; None if anything in the batch is not finite."""
        grad = self._adapters[number].grad
        assert grad is not None, "gradients are asked of training packs only"
        finite = isfinite(self.sums[number]["loss"]) and isfinite(float(grad.sum()))
        return grad if finite else None

    def _compute(self, rows: Sequence[Row], data: Sequence[Datum], objective: Objective) -> Tensor:
        """Log-probabilities [M, K] of all targets of the pass; with gradients also the backward pass."""
        ids, inside = self._padded(data)
        recompute = self._train and ids.numel() > self._recompute_tokens
        base, spans = self._base, self._spans(rows)
        with base.mixed(SpanMix(spans)), base.recomputing(recompute), torch.set_grad_enabled(self._train):
            hidden = base.hidden(ids)
            real = hidden.detach().flatten(0, 1) if inside is None else hidden.detach()[inside]
            gradient = objective.gradient if self._train else None
            lp, slope = target_logprobs(base, real, objective.targets, self._on_head(rows, spans), gradient)
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

    def _spans(self, rows: Sequence[Row]) -> list[Span]:
        spans, start = [], 0
        for number, group in groupby(rows, key=lambda row: row.batch):
            stop = start + sum(1 for _ in group)
            spans.append(Span(start, stop, self._adapters[number]))
            start = stop
        return spans

    def _on_head(self, rows: Sequence[Row], spans: Sequence[Span]) -> list[HeadAdapter]:
        """The adapters that change the head, each with its tokens."""
        name = self._base.unembed.name
        ends = [0, *accumulate(row.length for row in rows)]
        return [
            HeadAdapter(ends[span.start], ends[span.stop], LoraLayer(name, [span.adapter]))
            for span in spans
            if span.adapter.shape.slices(name) is not None
        ]

    def _keep(self, rows: Sequence[Row], data: Sequence[Datum], lp: Tensor) -> None:
        ends = list(accumulate(row.length for row in rows))
        for row, datum, end in zip(rows, data, ends, strict=True):
            shape = datum.inputs[TARGETS].shape
            choices = 1 if len(shape) == 1 else shape[1]
            kept = lp[end - row.length : end, :choices]
            self.logprobs[row.batch][row.place] = to_domain(kept.reshape(shape), DType.FLOAT32)


def _spread(slope: Tensor, inside: Tensor | None, hidden: Tensor) -> Tensor:
    """`slope` of the real tokens [M, width] in the form of `hidden` [B, T, width]; zero on padding."""
    if inside is None:
        return slope.view(hidden.shape)
    whole = torch.zeros_like(hidden)
    whole[inside] = slope
    return whole
