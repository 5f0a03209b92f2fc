"""The whole state of a run of all weights as one file of flat vectors: what its snapshots are. Internal; what users
save is a Hugging Face folder (see `full.py`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from openrl.domain.errors import WeightsUnsupported
from workers.model.flat_file import pack, unpack
from workers.train.run_state import Trained

NAME: Final = "full-run.safetensors"


@dataclass(frozen=True, slots=True)
class FullState:
    """Flat float32 vectors on the CPU."""

    weights: Tensor
    m: Tensor
    v: Tensor
    step: int
    grad: Tensor | None  #: pending; None where there is none


def holds(files: Mapping[str, bytes]) -> bool:
    """Whether a snapshot's files are those of a run of all weights."""
    return NAME in files


def write(run: Trained) -> dict[str, memoryview]:
    """Flat float32 `weights`, `m`, `v` and, where there is one, `grad`; the step as metadata."""
    vectors = {"weights": run.weights, "m": run.m, "v": run.v}
    if run.grad is not None:
        vectors["grad"] = run.grad
    entries = [(name, (each.numel(),)) for name, each in vectors.items()]
    return {NAME: pack(entries, list(vectors.values()), {"step": json.dumps(run.step)})}


def read(files: Mapping[str, bytes], size: int) -> FullState:
    """The state of a run of `size` weights. Raises WeightsUnsupported where it is another base model's."""
    try:
        vectors, metadata = unpack(files[NAME])
        weights, m, v, step = vectors["weights"], vectors["m"], vectors["v"], json.loads(metadata["step"])
    except (KeyError, ValueError) as error:
        raise WeightsUnsupported(NAME, "it is missing or unreadable") from error
    if any(len(each) != size for each in vectors.values()):
        raise WeightsUnsupported(NAME, "it belongs to another base model")
    return FullState(weights, m, v, step, vectors.get("grad"))
