"""Which attention masks a model's layers want in a decode step over rows of different lengths.

Models whose configuration names a type per layer (Qwen, Gemma) take a dict of masks by type; the others (Llama,
Mistral, Phi) take one mask for all layers. Keys lie at their own positions, so a row's position tells its mask.
"""

from typing import Any

import torch
from torch import Tensor

from openrl.domain.errors import ModelUnsupported

FULL, SLIDING = "full_attention", "sliding_attention"

Masks = Tensor | dict[str, Tensor]


class MaskPlan:
    """Builds decode masks for one model."""

    def __init__(self, config: Any, dtype: torch.dtype) -> None:
        """`config` is the text model's transformers configuration. Raises ModelUnsupported for other layer types."""
        self._dtype = dtype
        self._window: int | None = getattr(config, "sliding_window", None)
        types = getattr(config, "layer_types", None)
        self._types = None if types is None else frozenset(types)
        unknown = (self._types or frozenset()) - {FULL, SLIDING}
        if unknown:
            name = str(getattr(config, "model_type", "?"))
            raise ModelUnsupported(name, f"its layers of type {min(unknown)!r} cannot be sampled by the torch engine")

    def __call__(self, positions: Tensor, length: int) -> Masks:
        """Additive masks [n, 1, 1, length] for one new token per row at `positions` int64 [n]."""
        keys = torch.arange(length, device=positions.device)
        last = positions[:, None]
        seen = keys <= last
        if self._types is None:
            return self._additive(seen if self._window is None else seen & (keys > last - self._window))
        masks = {FULL: self._additive(seen)} if FULL in self._types else {}
        if SLIDING in self._types:
            assert self._window is not None, "layers that slide have a window"
            masks[SLIDING] = self._additive(seen & (keys > last - self._window))
        return masks

    def _additive(self, allowed: Tensor) -> Tensor:
        mask = torch.zeros(allowed.shape, dtype=self._dtype, device=allowed.device)
        return mask.masked_fill_(~allowed, float("-inf"))[:, None, None, :]
