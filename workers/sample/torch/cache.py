"""The key/value cache of continuous batching: one row per sample, rows of different lengths, in one buffer.

Rows 0..n-1 are in use, so that a decode step reads plain views and never copies the cache; a row that leaves is
replaced by the last one. The buffer is [layers, 2, rows, heads, length, head size]; it grows in buckets of rows and
length and starts anew at the right size when it is empty. A model sees it as its transformers cache, in one of two
moods: Prefill or Decode. Knows no requests.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LENGTH_STEP = 64  #: length grows by at least so many tokens


@dataclass(frozen=True, slots=True)
class Geometry:
    """What one token's keys and values take."""

    layers: int
    heads: int
    head_size: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, config: Any, dtype: torch.dtype, device: torch.device) -> "Geometry":
        """From a text model's transformers configuration."""
        heads = int(config.num_attention_heads)
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        return cls(int(config.num_hidden_layers), int(kv_heads), int(size), dtype, device)

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.heads * self.head_size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Prefill:
    """The first `span` tokens of prompt `source[i]` of the batch go to row `first + i`; `source` None keeps nothing."""

    first: int
    source: Tensor | None  #: int64 [rows]
    span: int


@dataclass(frozen=True, slots=True)
class Decode:
    """One new token in each of rows 0..n-1, at `cells` (row and position in one index per head)."""

    rows: int
    length: int  #: of the longest row, the new token included
    cells: Tensor  #: int64 [n * heads]


class SlotCache:
    """Keys and values of up to `max_rows` samples, at most `cache_tokens` cells (rows x length) in all."""

    is_compileable = False
    is_sliding: tuple[bool, ...] = ()  #: every layer keeps its full length; windows are the masks' business

    def __init__(self, geometry: Geometry, *, max_rows: int, cache_tokens: int) -> None:
        self.geometry, self.max_rows, self.cache_tokens = geometry, max_rows, cache_tokens
        self._data = torch.empty(0)
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._cells: list[tuple[Tensor, Tensor]] = []
        self._rows = self._length = 0
        self._mood: Prefill | Decode = Prefill(0, None, 0)

    def reserve(self, used: int, rows: int, length: int) -> None:
        """Make room for `rows` rows of `length` tokens, keeping the first `used` rows. Grows in buckets."""
        if rows <= self._rows and length <= self._length:
            return
        new_rows, new_length = bucket(rows, length, self.max_rows, self.cache_tokens)
        if used == 0:
            self._data = torch.empty(0)  # let go of the old buffer before the new one is made
            self._layers, self._cells = [], []
        old, kept = self._data, min(self._length, new_length)
        g = self.geometry
        # Zeros, because a masked key of garbage NaN would still poison the product with its value.
        data = torch.zeros(g.layers, 2, new_rows, g.heads, new_length, g.head_size, dtype=g.dtype, device=g.device)
        if used:
            data[:, :, :used, :, :kept] = old[:, :, :used, :, :kept]
        self._data, self._rows, self._length = data, new_rows, new_length
        self._layers = [(layer[0], layer[1]) for layer in data]
        self._cells = [(layer[0].view(-1, g.head_size), layer[1].view(-1, g.head_size)) for layer in data]

    def copy(self, source: int, first: int, count: int, length: int) -> None:
        """Copy the first `length` tokens of a row into rows first..first+count-1."""
        self._data[:, :, first : first + count, :, :length] = self._data[:, :, source : source + 1, :, :length]

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of each row in `sources` over a row in `targets`; no row is in both."""
        device = self._data.device
        moved = self._data[..., :length, :].index_select(2, torch.tensor(sources, device=device))
        self._data[..., :length, :].index_copy_(2, torch.tensor(targets, device=device), moved)

    def prefill(self, first: int, source: Tensor | None, span: int) -> None:
        """The next forward pass is over whole prompts: see Prefill."""
        self._mood = Prefill(first, source, span)

    def decode(self, positions: Tensor, length: int) -> None:
        """The next forward pass adds one token to each of rows 0..n-1 at `positions` int64 [n]."""
        rows, heads = positions.shape[0], self.geometry.heads
        first = torch.arange(rows * heads, device=positions.device) * self._length
        cells = (first.view(rows, heads) + positions[:, None]).view(-1)
        self._mood = Decode(rows, length, cells)

    # ------------------------------------------------------------------------------------ what a model calls
    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Store [b, heads, t, size] and answer what to attend to."""
        match self._mood:
            case Decode(rows, length, cells):
                all_keys, all_values = self._layers[layer]
                flat_keys, flat_values = self._cells[layer]
                flat_keys.index_copy_(0, cells, keys.reshape(-1, keys.shape[-1]))
                flat_values.index_copy_(0, cells, values.reshape(-1, values.shape[-1]))
                return all_keys[:rows, :, :length], all_values[:rows, :, :length]
            case Prefill(first, source, span):
                if source is not None:
                    end = first + source.shape[0]
                    self._layers[layer][0][first:end, :, :span] = keys[:, :, :span].index_select(0, source)
                    self._layers[layer][1][first:end, :, :span] = values[:, :, :span].index_select(0, source)
                return keys, values

    def get_seq_length(self, layer: int = 0) -> int:
        return self._mood.length - 1 if isinstance(self._mood, Decode) else 0

    def get_query_offset(self, layer: int = 0) -> int:
        return self.get_seq_length(layer)

    def get_mask_sizes(self, query_length: int, layer: int) -> tuple[int, int]:
        return self.get_seq_length(layer) + query_length, 0


def cache_argument(decoder: Any) -> str:
    """What this version of transformers calls the cache in a decoder's arguments."""
    return "cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values"


def affordable_tokens(geometry: Geometry, wanted: int, free: int) -> int:
    """Cache tokens for a worker with `free` bytes: what it could ever use, but at most a quarter of the memory, as the
    buffer is there twice while it grows."""
    return max(LENGTH_STEP, min(wanted, free // 4 // geometry.bytes_per_token))


def bucket(rows: int, length: int, max_rows: int, cache_tokens: int) -> tuple[int, int]:
    """The buffer to allocate for rows x length: rounded up where the bound on cells allows, exact where it does not."""
    roomy_rows = min(max_rows, 1 << (rows - 1).bit_length())
    step = max(LENGTH_STEP, 1 << max(0, length.bit_length() - 2))  # a quarter to a half more, at the most
    roomy_length = -(-length // step) * step
    for wanted in ((roomy_rows, roomy_length), (rows, roomy_length), (roomy_rows, length)):
        if wanted[0] * wanted[1] <= cache_tokens:
            return wanted
    return rows, length
