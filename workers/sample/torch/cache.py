"""The key/value cache of continuous batching: one row per sample, rows of different lengths, in one buffer.

The rows that are decoded are rows 0..n-1, so that a decode step reads plain views and never copies the cache; prompts
being computed and what finished rows left are behind them. The buffer is [layers, 2, rows, heads, length, head size];
it grows in buckets of rows and length. A model sees it as its transformers cache, in one of three moods: Prefill,
Extend or Decode. Knows no requests.
"""

import inspect
from collections.abc import Mapping, Sequence
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
class Span:
    """Tokens of a prompt that one pass computes, and the cache row they go to."""

    row: int | None  #: None keeps nothing, and begins at 0
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Kept:
    """What of a pass's new keys is kept, and where."""

    taken: Tensor  #: int64 [tokens * heads], of [b * heads * t]
    cells: Tensor  #: int64 [tokens * heads], of [rows * heads * length]


@dataclass(frozen=True, slots=True)
class Prefill:
    """The beginnings of prompts, which attend to themselves only."""

    kept: _Kept


@dataclass(frozen=True, slots=True)
class Extend:
    """Tokens in the middle of prompts: they attend to the first `length` cells of their rows."""

    kept: _Kept
    rows: slice | Tensor
    length: int


@dataclass(frozen=True, slots=True)
class Decode:
    """One new token in each of rows 0..n-1, at `cells` (row and position in one index per head)."""

    rows: int
    length: int  #: of the longest row, the new token included
    cells: Tensor  #: int64 [n * heads]


class RowCache:
    """Keys and values of up to `max_rows` samples, at most `cache_tokens` cells (rows x length) in all."""

    is_compileable = False
    is_sliding: tuple[bool, ...] = ()  #: every layer keeps its full length; windows are the masks' business

    def __init__(self, geometry: Geometry, *, max_rows: int, cache_tokens: int) -> None:
        self.geometry, self.max_rows, self.cache_tokens = geometry, max_rows, cache_tokens
        self.rows = self.length = 0  #: of the buffer
        self._data = torch.empty(0)
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._cells: list[tuple[Tensor, Tensor]] = []
        self._mood: Prefill | Extend | Decode = Decode(0, 1, torch.empty(0))

    def rebuild(self, kept: Mapping[int, int], rows: int, length: int) -> None:
        """A new buffer of `rows` rows of `length` tokens, in which row i is what row `kept[i]` was."""
        if not kept:
            self._data = torch.empty(0)  # let go of the old buffer before the new one is made
            self._layers, self._cells, self.rows, self.length = [], [], 0, 0
        old, shared = self._data, min(self.length, length)
        g = self.geometry
        # Zeros, because a masked key of garbage NaN would still poison the product with its value.
        data = torch.zeros(g.layers, 2, rows, g.heads, length, g.head_size, dtype=g.dtype, device=g.device)
        for row, source in kept.items():
            data[:, :, row, :, :shared] = old[:, :, source, :, :shared]
        self._data, self.rows, self.length = data, rows, length
        self._layers = [(layer[0], layer[1]) for layer in data]
        self._cells = [(layer[0].view(-1, g.head_size), layer[1].view(-1, g.head_size)) for layer in data]

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of a row into other rows."""
        for target in targets:
            self._data[:, :, target, :, :length] = self._data[:, :, source, :, :length]

    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first `length` tokens of each row in `sources` over a row in `targets`, all at once."""
        device = self._data.device
        moved = self._data[..., :length, :].index_select(2, torch.tensor(sources, device=device))
        self._data[..., :length, :].index_copy_(2, torch.tensor(targets, device=device), moved)

    def wipe(self, row: int) -> None:
        """Take out what is not finite: masked, it would still poison whoever has the row next."""
        self._data[:, :, row] = 0

    def prefill(self, spans: Sequence[Span], width: int) -> None:
        """The next forward pass is over the beginnings of prompts, padded to `width`."""
        self._mood = Prefill(self._kept(spans, width))

    def extend(self, spans: Sequence[Span], width: int) -> int:
        """The next forward pass goes on with prompts that have rows, padded to `width`. How many cells it sees."""
        rows = [span.row for span in spans if span.row is not None]
        length = max(span.end for span in spans)
        near = rows == list(range(rows[0], rows[0] + len(rows)))
        seen = slice(rows[0], rows[-1] + 1) if near else torch.tensor(rows, device=self._data.device)
        self._mood = Extend(self._kept(spans, width), seen, length)
        return length

    def decode(self, positions: Tensor, length: int) -> None:
        """The next forward pass adds one token to each of rows 0..n-1 at `positions` int64 [n]."""
        rows, heads = positions.shape[0], self.geometry.heads
        first = torch.arange(rows * heads, device=positions.device) * self.length
        cells = (first.view(rows, heads) + positions[:, None]).view(-1)
        self._mood = Decode(rows, length, cells)

    def _kept(self, spans: Sequence[Span], width: int) -> _Kept:
        heads, kept = self.geometry.heads, [(index, span) for index, span in enumerate(spans) if span.row is not None]
        if not kept:
            return _Kept(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        head = torch.arange(heads)[:, None]
        taken = [((index * heads + head) * width + torch.arange(len(span))).view(-1) for index, span in kept]
        cells = [
            ((span.row * heads + head) * self.length + torch.arange(span.start, span.end)).view(-1)
            for _, span in kept
            if span.row is not None
        ]
        return _Kept(torch.cat(taken).to(self._data.device), torch.cat(cells).to(self._data.device))

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
            case Prefill(kept):
                self._store(kept, keys, values, layer)
                return keys, values
            case Extend(kept, which, length):
                self._store(kept, keys, values, layer)
                all_keys, all_values = self._layers[layer]
                return all_keys[which, :, :length], all_values[which, :, :length]

    def _store(self, kept: _Kept, keys: Tensor, values: Tensor, layer: int) -> None:
        if kept.cells.numel():
            for cells, new in zip(self._cells[layer], (keys, values), strict=True):
                cells.index_copy_(0, kept.cells, new.reshape(-1, new.shape[-1]).index_select(0, kept.taken))

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
    roomy_rows = max(rows, min(max_rows, 1 << (rows - 1).bit_length()))
    step = max(LENGTH_STEP, 1 << max(0, length.bit_length() - 2))  # a quarter to a half more, at the most
    roomy_length = -(-length // step) * step
    for wanted in ((roomy_rows, roomy_length), (rows, roomy_length), (roomy_rows, length)):
        if wanted[0] * wanted[1] <= cache_tokens:
            return wanted
    return rows, length
