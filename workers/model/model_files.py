"""A whole model's weights as files, those of a Hugging Face folder, which transformers reads too. Knows no folders:
names and bytes.

Tied weights are one tensor, under the name that comes first in the model, as transformers writes them.
"""

import json
from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from openrl.domain.errors import WeightsUnsupported
from workers.model.base import BaseModel

CONFIG = "config.json"
GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"


def holds_model(files: Mapping[str, bytes]) -> bool:
    """Whether these files are a whole model's; an adapter's have other names."""
    return WEIGHTS in files


def parameters(model: BaseModel) -> dict[str, nn.Parameter]:
    """By their names in transformers; each once."""
    return dict(model.module.named_parameters())


def to_files(model: BaseModel, weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, bytes]:
    """`weights` by name as `model.safetensors` in `dtype`, with the configuration of `model`."""
    config = model.module.config.to_dict() | {
        "architectures": [model.architecture],
        "dtype": str(dtype).removeprefix("torch."),
    }
    tensors = {name: each.detach().to("cpu", dtype).contiguous() for name, each in weights.items()}
    files = {CONFIG: _json(config), WEIGHTS: save(tensors, {"format": "pt"})}
    generation = getattr(model.module, "generation_config", None)
    return files if generation is None else {**files, GENERATION: _json(generation.to_dict())}


def from_files(model: BaseModel, files: Mapping[str, bytes]) -> dict[str, Tensor]:
    """The weights by name, on the CPU, one for each parameter of `model`. Raises WeightsUnsupported naming what does
    not fit."""
    try:
        tensors = load(files[WEIGHTS])
    except (KeyError, SafetensorError) as error:
        raise WeightsUnsupported(WEIGHTS, "it is missing or is not in safetensors format") from error
    wanted = parameters(model)
    for name in wanted.keys() ^ tensors.keys():
        problem = "the file does not have it" if name in wanted else "the base model has no weights of that name"
        raise WeightsUnsupported(name, problem)
    for name, parameter in wanted.items():
        if tensors[name].shape != parameter.shape:
            found, fitting = list(tensors[name].shape), list(parameter.shape)
            raise WeightsUnsupported(name, f"its shape is {found}; the base model's is {fitting}")
    return tensors


@torch.no_grad()
def put(model: BaseModel, weights: Mapping[str, Tensor]) -> None:
    """Write `weights`, one for each parameter, over those of `model`."""
    for name, parameter in parameters(model).items():
        parameter.copy_(weights[name])


def _json(fields: object) -> bytes:
    return json.dumps(fields, indent=2, default=str).encode()
