"""A run as files for users: the adapter in PEFT's format, the optimizer beside it. A pending gradient is left out."""

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from openrl.domain.errors import AdapterUnsupported
from workers.model.adapter_files import from_files, to_files
from workers.model.layout import ModelLayout
from workers.train.run_state import RunState

OPTIMIZER = "optimizer.safetensors"


def write(run: RunState, base_model_name: str) -> dict[str, bytes]:
    """PEFT files and `optimizer.safetensors`: flat float32 `m` and `v`, int64 `step`."""
    tensors = {"m": run.m, "v": run.v, "step": torch.tensor([run.step])}
    packed = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, {"format": "pt"})
    return {**to_files(run.shape, run.weights, base_model_name), OPTIMIZER: packed}


def read(layout: ModelLayout, files: Mapping[str, bytes], *, with_optimizer: bool) -> RunState:
    """A run on the CPU. Raises AdapterUnsupported for what does not fit, or an optimizer that is not there."""
    run = RunState.holding(*from_files(layout, files))
    if with_optimizer:
        _restore(run, files)
    return run


def _restore(run: RunState, files: Mapping[str, bytes]) -> None:
    try:
        tensors = load(files[OPTIMIZER])
        m, v, step = tensors["m"], tensors["v"], tensors["step"]
    except (KeyError, SafetensorError) as error:
        problem = "it is missing or unreadable; load the weights without the optimizer"
        raise AdapterUnsupported(OPTIMIZER, problem) from error
    if m.shape != run.weights.shape or v.shape != run.weights.shape:
        raise AdapterUnsupported(OPTIMIZER, "it belongs to an adapter of another rank or other layers")
    run.m, run.v, run.step = m, v, int(step)
