"""A run's whole state as one file of flat vectors: what snapshots are. Internal; what users save is PEFT's (see
`checkpoint_files.py`)."""

import json
from collections.abc import Mapping

from torch import Tensor

from openrl.domain.errors import AdapterUnsupported
from workers.model.flat_file import pack, unpack
from workers.model.layout import LoraShape, ModelLayout
from workers.train.run_state import RunState

NAME = "run.safetensors"


def write(run: RunState) -> dict[str, memoryview]:
    """Flat float32 `weights`, `m`, `v` and, where there is one, `grad`; the shape, step and seed as metadata."""
    vectors = {"weights": run.weights, "m": run.m, "v": run.v}
    if run.grad is not None:
        vectors["grad"] = run.grad
    facts = {"rank": run.shape.rank, "targets": run.shape.names, "step": run.step, "seed": run.seed}
    entries = [(name, (run.shape.size,)) for name in vectors]
    return {NAME: pack(entries, list(vectors.values()), {"run": json.dumps(facts)})}


def read(layout: ModelLayout, files: Mapping[str, bytes]) -> RunState:
    """The run on the CPU, exactly as it was. Raises AdapterUnsupported where it is another base model's."""
    try:
        vectors, metadata = unpack(files[NAME])
        facts = json.loads(metadata["run"])
    except (KeyError, ValueError) as error:
        raise AdapterUnsupported(NAME, "it is missing or unreadable") from error
    shape = LoraShape(layout, facts["rank"], facts["targets"])
    if any(len(vector) != shape.size for vector in vectors.values()):
        raise AdapterUnsupported(NAME, "it belongs to another base model")
    return _run(shape, vectors, facts["step"], facts["seed"])


def _run(shape: LoraShape, vectors: Mapping[str, Tensor], step: int, seed: int | None) -> RunState:
    return RunState(shape, vectors["weights"], vectors["m"], vectors["v"], step, vectors.get("grad"), seed)
