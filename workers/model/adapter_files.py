"""Adapters as files in PEFT's format, which PEFT, transformers and vLLM read too. Knows no folders: names and bytes."""

import json
import re
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from openrl.domain.errors import AdapterUnsupported
from workers.model.finite import all_finite
from workers.model.flat_file import Entry, pack
from workers.model.layout import ALPHA, LoraShape, ModelLayout

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<matrix>[AB])\.weight")
#: Settings under which an adapter would compute something else than B·A·x; they must be absent, false, none or empty.
_REFUSED = (
    "use_dora", "modules_to_save", "fan_in_fan_out", "lora_bias", "layer_replication", "trainable_token_indices",
    "alora_invocation_tokens", "use_bdlora", "use_qalora", "arrow_config", "kasa_config", "monteclora_config",
    "target_parameters",
)  # fmt: skip


def to_files(shape: LoraShape, flat: Tensor, base_model_name: str) -> dict[str, bytes]:
    """A flat adapter [shape.size] float32 as `adapter_config.json` and `adapter_model.safetensors`."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model_name,
        "r": shape.rank,
        "lora_alpha": int(ALPHA),
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": _target_modules(shape),
        "inference_mode": True,
    }
    weights = pack(_entries(shape), [flat], {"format": "pt"})
    return {CONFIG: json.dumps(config, indent=2).encode(), WEIGHTS: bytes(weights)}


def _entries(shape: LoraShape) -> list[Entry]:
    """A and B of each target under PEFT's names, as they lie in the flat vector."""
    entries: list[Entry] = []
    for target in shape.targets:
        key = f"base_model.model.{target.name}.lora"
        entries.append((f"{key}_A.weight", (shape.rank, target.in_features)))
        entries.append((f"{key}_B.weight", (target.out_features, shape.rank)))
    return entries


def from_files(layout: ModelLayout, files: Mapping[str, bytes]) -> tuple[LoraShape, Tensor]:
    """Any plain LoRA adapter for this base model, whatever its alpha: other scales are folded into B.

    Modules of smaller rank are padded with zeros. Raises AdapterUnsupported naming what does not fit.
    """
    config, pairs = config_of(files), _pairs(layout, files)
    shape = LoraShape(layout, max(a.shape[0] for a, _ in pairs.values()), pairs)
    flat = torch.zeros(shape.size)
    for target in shape.targets:
        a, b = pairs[target.name]
        rank = a.shape[0]
        at_a, at_b = shape.parts(target.name)
        flat[at_a].view(shape.rank, -1)[:rank] = a
        flat[at_b].view(-1, shape.rank)[:, :rank] = b * (_scale(config, target.name, rank) / shape.scale)
    if not all_finite(flat):
        raise AdapterUnsupported(WEIGHTS, "it holds values that are not finite")
    return shape, flat


def config_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    """An adapter's settings. Raises AdapterUnsupported where it is not plain LoRA."""
    try:
        config = json.loads(files[CONFIG])
    except (KeyError, ValueError) as error:
        raise AdapterUnsupported(CONFIG, "it is missing or is not JSON") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterUnsupported(CONFIG, "peft_type must be LORA")
    for name in _REFUSED:
        if config.get(name):
            raise AdapterUnsupported(name, "only plain LoRA matrices can be loaded; train or export without it")
    if config.get("bias", "none") != "none":
        raise AdapterUnsupported("bias", f"is {config['bias']!r}; only 'none' can be loaded")
    return config


def _pairs(layout: ModelLayout, files: Mapping[str, bytes]) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B by module path, checked against the base model."""
    try:
        tensors = load(files[WEIGHTS])
    except (KeyError, SafetensorError) as error:
        raise AdapterUnsupported(WEIGHTS, "it is missing or is not in safetensors format") from error
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None or match["module"] not in layout.by_name:
            raise AdapterUnsupported(key, "the base model has no linear layer of that name that can carry LoRA")
        found.setdefault(match["module"], {})[match["matrix"]] = tensor.float()
    if not found:
        raise AdapterUnsupported(WEIGHTS, "it holds no LoRA matrices")
    return {name: _fitting(layout, name, pair) for name, pair in found.items()}


def _fitting(layout: ModelLayout, name: str, pair: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    target, a, b = layout.by_name[name], pair.get("A"), pair.get("B")
    if a is None or b is None or a.dim() != 2 or b.dim() != 2:
        raise AdapterUnsupported(name, "it needs one lora_A and one lora_B matrix")
    if a.shape != (a.shape[0], target.in_features) or b.shape != (target.out_features, a.shape[0]):
        raise AdapterUnsupported(
            name,
            f"lora_A {list(a.shape)} and lora_B {list(b.shape)} do not fit the base model's layer, "
            f"which takes {target.in_features} and gives {target.out_features} features",
        )
    return a, b


def _scale(config: Mapping[str, Any], name: str, rank: int) -> float:
    """What PEFT multiplies B·A by in this module."""
    alpha = config.get("lora_alpha", 8)  # PEFT's own default
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", name):
            alpha = value
            break
    return float(alpha / rank**0.5 if config.get("use_rslora") else alpha / rank)


def _target_modules(shape: LoraShape) -> list[str]:
    """Last parts of the module paths where these say it exactly, else the whole paths."""
    leaves = {name.rpartition(".")[2] for name in shape.names}
    meant = [target.name for target in shape.layout.targets if target.name.rpartition(".")[2] in leaves]
    return sorted(leaves if len(meant) == len(shape.names) else shape.names)
