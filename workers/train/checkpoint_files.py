"""A run as files for users: the adapter in PEFT's format, the optimizer beside it. A pending gradient is left out."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from openrl.domain.errors import WeightsUnsupported
from workers.model.adapter_files import from_files, to_files
from workers.model.layout import ModelLayout
from workers.train.run_state import RunState, Trained

OPTIMIZER = "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """Flat float32 vectors on the CPU."""

    m: Tensor
    v: Tensor
    step: int


def write(run: RunState, base_model_name: str) -> dict[str, bytes]:
    """PEFT files and the optimizer's."""
    return {**to_files(run.shape, run.weights, base_model_name), OPTIMIZER: optimizer(run)}


def optimizer(run: Trained) -> bytes:
    """`optimizer.safetensors`: flat float32 `m` and `v`, int64 `step`."""
    tensors = {"m": run.m, "v": run.v, "step": torch.tensor([run.step])}
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, {"format": "pt"})


def read(layout: ModelLayout, files: Mapping[str, bytes], *, with_optimizer: bool) -> RunState:
    """A run on the CPU. Raises AdapterUnsupported for what does not fit, WeightsUnsupported for an optimizer that does
    not or is not there."""
    run = RunState.holding(*from_files(layout, files))
    if with_optimizer:
        state = read_optimizer(files, run.weights.shape)
        run.m, run.v, run.step = state.m, state.v, state.step
    return run


def read_optimizer(files: Mapping[str, bytes], shape: torch.Size) -> OptimizerState:
    """For weights of that shape. Raises WeightsUnsupported."""
    try:
        tensors = load(files[OPTIMIZER])
        m, v, step = tensors["m"], tensors["v"], tensors["step"]
    except (KeyError, SafetensorError) as error:
        problem = "it is missing or unreadable; load the weights without the optimizer"
        raise WeightsUnsupported(OPTIMIZER, problem) from error
    if m.shape != shape or v.shape != shape:
        raise WeightsUnsupported(OPTIMIZER, "it belongs to weights of another rank or other layers")
    return OptimizerState(m, v, int(step))
