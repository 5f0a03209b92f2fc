"""safetensors files of float32 tensors that lie one after another in flat vectors: written in one copy.

The general writer takes one call and two copies per tensor, which for hundreds of small matrices costs more than their
bytes. The format: https://huggingface.co/docs/safetensors/index#format. Reading is safetensors' own.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod

import numpy as np
import torch
from torch import Tensor

Entry = tuple[str, tuple[int, ...]]  #: a tensor's name and shape
_ITEM_BYTES = 4


def pack(entries: Sequence[Entry], vectors: Sequence[Tensor], metadata: Mapping[str, str]) -> memoryview:
    """A file of the tensors `entries`, whose elements are those of `vectors` (float32, contiguous, one dimension) in
    order. Other threads go on meanwhile: the copy is made without the interpreter's lock."""
    ends = list(accumulate((prod(shape) * _ITEM_BYTES for _, shape in entries), initial=0))
    assert ends[-1] == sum(vector.numel() for vector in vectors) * _ITEM_BYTES, "the entries fill the vectors exactly"
    header = _header(entries, ends, metadata)
    out = np.empty(len(header) + ends[-1], np.uint8)
    out[: len(header)] = np.frombuffer(header, np.uint8)
    start = len(header)
    for vector in vectors:
        data = vector.detach().to("cpu", torch.float32).numpy().view(np.uint8)
        out[start : start + data.nbytes] = data
        start += data.nbytes
    return out.data


def unpack(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file that `pack` wrote from whole vectors, as copies in one dimension, and its metadata. Raises
    ValueError for bytes that are none."""
    try:
        length = int.from_bytes(data[:8], "little")
        start, header = 8 + length, json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__")
        found = {name: _copied(data, start, *each["data_offsets"]) for name, each in header.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a file of flat vectors") from error
    return found, metadata


def _header(entries: Sequence[Entry], ends: Sequence[int], metadata: Mapping[str, str]) -> bytes:
    """Length and description, filled up with blanks so that the numbers begin at a multiple of eight bytes."""
    told: dict[str, object] = {"__metadata__": dict(metadata)}
    for (name, shape), (start, end) in zip(entries, pairwise(ends), strict=True):
        told[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _copied(data: bytes, base: int, start: int, end: int) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.float32, (end - start) // _ITEM_BYTES, base + start).copy())
