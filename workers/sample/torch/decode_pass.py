"""The pass of a decode step: one token for every row of the table.

Keeps on the device what the next step needs while the rows stay the same. Knows no requests but through the rows.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.model.attention_rows import Band, banded, each_alone, whole_blocks
from workers.model.base import BaseModel
from workers.model.lora import Mix
from workers.sample.torch.adapters import Adapters
from workers.sample.torch.logits import Draw, Drawn
from workers.sample.torch.masks import MaskPlan
from workers.sample.torch.table import Table

#: Cells that a band must save to be worth its kernels, by whether it is a CPU that computes.
WORTH = {True: 256, False: 32768}


@dataclass(slots=True)
class _Batch:
    """What a step needs."""

    ids: Tensor  #: int64 [n, 1], to be fed
    positions: Tensor  #: int64 [n], of `ids`
    lengths: list[int]  #: tokens of each row, the new one included
    bands: list[range]  #: rows that attend together
    draw: Draw
    mix: Mix
    steady: bool  #: whether a row has a seed: it must get the same tokens whatever rows are beside it


class DecodePass:
    """`with_cache` are the arguments that make the model use the table's cache."""

    def __init__(self, base: BaseModel, adapters: Adapters, table: Table, with_cache: Mapping[str, object]) -> None:
        self._base, self._adapters, self._table, self._with_cache = base, adapters, table, with_cache
        self._masks = MaskPlan(base.module.config.get_text_config(), base.dtype)
        self._worth = WORTH[base.device.type == "cpu"]
        self._batch: _Batch | None = None

    def forget(self) -> None:
        """The table's rows have changed."""
        self._batch = None

    def __call__(self) -> Drawn:
        """A token for each row of the table, in order; the rows are still to take them."""
        batch = self._batch = self._batch or self._assembled()
        length = whole_blocks(max(batch.lengths))
        self._table.lengthen(length)
        self._table.cache.decode(batch.positions, length)
        with self._base.mixed(batch.mix), banded(self._bands(batch)), self._steadied(batch):
            hidden = self._base.hidden(
                batch.ids,
                position_ids=batch.positions[:, None],
                attention_mask=self._masks(batch.positions, length),
                **self._with_cache,
            )
            logits = self._base.head(hidden[:, 0])
        drawn = batch.draw(logits, [len(row.tokens) for row in self._table.rows])
        batch.ids, batch.positions = drawn.tokens[:, None], batch.positions + 1
        batch.lengths = [length + 1 for length in batch.lengths]
        return drawn

    def _bands(self, batch: _Batch) -> list[Band]:
        if batch.steady and not self._base.attend_alike:
            return each_alone(batch.lengths)
        return [
            Band(slice(rows.start, rows.stop), whole_blocks(max(batch.lengths[rows.start : rows.stop])))
            for rows in batch.bands
        ]

    def _steadied(self, batch: _Batch) -> AbstractContextManager[None]:
        return self._base.steady() if batch.steady else nullcontext()

    def _assembled(self) -> _Batch:
        bands = self._table.arrange(self._worth)
        rows, device = self._table.rows, self._base.device
        policies = [row.policy for row in rows]
        steady = any(row.choice.seeded for row in rows)
        return _Batch(
            ids=torch.tensor([[row.tokens[-1]] for row in rows], device=device),
            positions=torch.tensor([row.position for row in rows], device=device),
            lengths=[row.position + 1 for row in rows],
            bands=bands,
            draw=Draw([row.choice for row in rows], device),
            mix=self._adapters.steady_mix(policies) if steady else self._adapters.decode_mix(policies),
            steady=steady,
        )
