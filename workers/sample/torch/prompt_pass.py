"""One pass over parts of prompts: their keys and values go to the cache, their hidden states to the caller.

Knows no admission, no requests and no sampling.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from openrl.domain.ids import DepotKey
from workers.model.base import BaseModel
from workers.sample.torch.adapters import Adapters
from workers.sample.torch.cache import RowCache, Span
from workers.sample.torch.masks import MaskPlan
from workers.sample.torch.strands import Strand


class PromptPass:
    """`with_cache` are the arguments that make the model use the cache."""

    def __init__(self, base: BaseModel, adapters: Adapters, cache: RowCache, with_cache: Mapping[str, object]) -> None:
        self._base, self._adapters, self._cache, self._with_cache = base, adapters, cache, with_cache
        self._masks = MaskPlan(base.module.config.get_text_config(), base.dtype)

    def __call__(self, strands: Sequence[Strand], spans: Sequence[Span]) -> Tensor:
        """Hidden states [n, longest span, width], of each strand's `span`. Either all spans begin at 0 or none."""
        width = max(map(len, spans))
        tokens = torch.zeros((len(spans), width), dtype=torch.int64)  # pads on the right, where nothing looks
        for index, (strand, span) in enumerate(zip(strands, spans, strict=True)):
            tokens[index, : len(span)] = torch.from_numpy(strand.prompt[span.start : span.end])
        with self._base.mixed(self._adapters.mix([strand.policy for strand in strands])):
            return self._base.hidden(tokens.to(self._base.device), **self._arguments(spans, width))

    def head(self, hidden: Tensor, policies: Sequence[DepotKey | None]) -> Tensor:
        """Logits of hidden states, one policy for each row of [n, ..., width]."""
        with self._base.mixed(self._adapters.mix(policies)):
            return self._base.head(hidden)

    def _arguments(self, spans: Sequence[Span], width: int) -> Mapping[str, object]:
        if all(span.row is None for span in spans):
            return {"use_cache": False}
        if not spans[0].start:
            self._cache.prefill(spans, width)
            return self._with_cache
        length = self._cache.extend(spans, width)
        starts = torch.tensor([span.start for span in spans], device=self._base.device)
        positions = (starts[:, None] + torch.arange(width, device=self._base.device)).clamp(max=length - 1)
        return {**self._with_cache, "position_ids": positions, "attention_mask": self._masked(positions, length)}

    def _masked(self, positions: Tensor, length: int) -> Tensor | dict[str, Tensor]:
        """Masks [n, 1, width, length] for `positions` int64 [n, width]."""
        flat = self._masks(positions.view(-1), length)

        def by_row(mask: Tensor) -> Tensor:
            return mask.view(*positions.shape, length)[:, None]

        return {name: by_row(mask) for name, mask in flat.items()} if isinstance(flat, dict) else by_row(flat)
