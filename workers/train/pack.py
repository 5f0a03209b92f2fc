"""A pack: the batches of several runs in common passes over a model. Knows batches by number, and not what learns."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from math import isfinite

import torch
from torch import Tensor

from openrl.domain import tensor
from openrl.domain.datum import Datum
from openrl.domain.losses import TARGETS
from openrl.domain.tensor import DType
from workers.model.allocation import ran_out
from workers.model.arrays import to_domain
from workers.model.base import BaseModel
from workers.train.batch import Batch
from workers.train.estimate import Load
from workers.train.learners import Learners, Stretch
from workers.train.logprobs import target_logprobs
from workers.train.objective import Objective
from workers.train.packing import Holds, Pass, Row, always, load_of, passes, plan
from workers.train.placement import Placement, folded, padded, text


class Pack:
    """Batches that run together, all forward only or all with gradients. Results pile up pass by pass."""

    def __init__(self, base: BaseModel, batches: Sequence[Batch], learners: Learners, *, train: bool) -> None:
        self._base, self.train = base, train
        self._batches, self._learners = batches, learners
        self._keys = [batch.loss_key for batch in batches]
        self._order = [(learners.kind(number), key) for number, key in enumerate(self._keys)]
        self.logprobs: list[list[tensor.Tensor | None]] = [[None] * len(batch.data) for batch in batches]
        self.sums: list[defaultdict[str, float]] = [defaultdict(float) for _ in batches]
        self.places = self.padding = 0  #: tokens that the model ran, and those of them that were padding

    @cached_property
    def rows(self) -> dict[Row, bytes]:
        """All rows, with their texts."""
        return {
            Row(number, place, datum.length): text(datum)
            for number, batch in enumerate(self._batches)
            for place, datum in enumerate(batch.data)
        }

    def passes(self, rows: Collection[Row], pack_tokens: int, holds: Holds = always) -> Iterator[Pass]:
        """Some rows in passes of at most `pack_tokens` tokens that memory holds."""
        if self._base.folds:
            return plan(list(rows), {row: self.rows[row] for row in rows}, pack_tokens, holds)
        return passes(rows, pack_tokens, holds)

    def load(self, one: Pass) -> Load:
        return load_of(one, self.rows)

    def run(self, one: Pass) -> bool:
        """Log-probabilities and sums are kept, gradients added. False if memory ended before all of that was done."""
        try:
            self._run(one)
        except Exception as error:
            if not ran_out(error):
                raise
            return False
        return True

    def forget(self, batches: Collection[int]) -> None:
        """As if no pass had held a row of these batches."""
        for number in batches:
            self.logprobs[number] = [None] * len(self._batches[number].data)
            self.sums[number].clear()
            self._learners.forget(number)

    def close(self) -> None:
        """There are no more passes; gradients that nobody took are given up."""
        self._learners.close()

    @property
    def gradients(self) -> list[Tensor]:
        """As gathered so far, by batch, flat [size] float32 each; empty where the pack runs forward only."""
        return [self._learners.gradient(number) for number in range(len(self._batches))] if self.train else []

    def gradient(self, number: int) -> Tensor | None:
        """Of a batch, flat [size] float32, for the caller to keep; None if anything in the batch is not finite."""
        grad = self._learners.gradient(number)
        finite = isfinite(self.sums[number]["loss"]) and isfinite(float(grad.sum()))
        return grad if finite else None

    def _run(self, one: Pass) -> None:
        # Rows of one batch, and tokens of one loss, stand together: they are computed as blocks.
        rows = sorted(one.rows, key=lambda row: (*self._order[row.batch], row.batch, self._rank(row, one.folded)))
        groups = [list(group) for _, group in groupby(rows, key=lambda row: row.batch)]
        place = folded if one.folded else padded
        placement = place([[self._datum(row) for row in group] for group in groups], self._base.device)
        self.places += placement.ids.numel()
        self.padding += placement.padding
        objective = Objective(
            [(row.batch, self._datum(row), self._keys[row.batch]) for row in rows], self._base.device, placement.order
        )
        batches = [group[0].batch for group in groups]
        lp = self._compute(placement, batches, objective, recompute=self.train and one.recompute).cpu()
        for number, sums in objective.sums(lp).items():
            for name, value in sums.items():
                self.sums[number][name] += value
        self._keep(rows, placement.unsorted(lp))

    def _datum(self, row: Row) -> Datum:
        return self._batches[row.batch].data[row.place]

    def _rank(self, row: Row, by_text: bool) -> tuple[bytes, int]:
        """A row's place within its batch."""
        return text(self._datum(row)) if by_text else b"", row.place

    def _compute(
        self, placement: Placement, batches: Sequence[int], objective: Objective, *, recompute: bool
    ) -> Tensor:
        """Log-probabilities [M, K] of all targets of the pass, whose groups are of `batches`; with gradients also the
        backward pass."""
        base, gradient = self._base, objective.gradient if self.train else None
        mix = self._learners.mix(_stretches(batches, placement.row_ends))
        with base.mixed(mix), base.recomputing(recompute), torch.set_grad_enabled(self.train):
            hidden = base.hidden(placement.ids, **placement.options)
            real = placement.tokens(hidden.detach())
            on_head = self._learners.on_head(_stretches(batches, placement.token_ends))
            lp, slope = target_logprobs(base, real, objective.targets, on_head, gradient, placement.owners)
            if slope is not None and hidden.requires_grad:
                torch.autograd.backward([hidden], [placement.spread(slope, hidden)])
        return lp

    def _keep(self, rows: Sequence[Row], lp: Tensor) -> None:
        ends = list(accumulate(row.length for row in rows))
        for row, end in zip(rows, ends, strict=True):
            shape = self._datum(row).inputs[TARGETS].shape
            choices = 1 if len(shape) == 1 else shape[1]
            kept = lp[end - row.length : end, :choices]
            self.logprobs[row.batch][row.place] = to_domain(kept.reshape(shape), DType.FLOAT32)


def _stretches(batches: Sequence[int], ends: Sequence[int]) -> list[Stretch]:
    """Where the group of each batch starts and stops."""
    return [Stretch(batch, *pair) for batch, pair in zip(batches, pairwise((0, *ends)), strict=True)]
