"""A base model whose decoder layers are cut over the ranks of a mesh. Knows nothing of who trains on it.

A layer is gathered whole just before it computes, forward and backward, and dropped after (PyTorch's `fully_shard`).
So all ranks must make the same number of passes, and in training each of them must go back through every layer: a rank
that left one out would keep the others waiting for its part. Embeddings, the last norm and the head stay whole: the
head is used outside of any module's forward, and is often the embeddings themselves.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from transformers.modeling_layers import GradientCheckpointingLayer

from workers.model.base import BaseModel
from workers.model.lora import Mix


def shard(base: BaseModel, mesh: DeviceMesh, device: torch.device) -> None:
    """Keeps this rank's part of every decoder layer on `device` and moves the rest there whole. No communication yet.

    `base` is best on the CPU: then the device never holds more than its part and one layer.
    """
    decoder: Any = base.module.get_decoder()
    layers = [layer for layer in decoder.modules() if isinstance(layer, GradientCheckpointingLayer)]
    sharded = {id(parameter) for layer in layers for parameter in layer.parameters()}
    whole = {parameter for parameter in base.module.parameters() if id(parameter) not in sharded}
    for tensor in (*whole, *base.module.buffers()):
        tensor.data = tensor.data.to(device)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(decoder, mesh=mesh, ignored_params=whole)  # the root, which lets a layer be gathered ahead of its turn
    base.module.get_input_embeddings().register_forward_hook(_want_gradient)
    base.device = device


def idle_pass(base: BaseModel, *, train: bool) -> None:
    """One token of the base model alone, for nothing: what a rank without work does while others make a pass."""
    ids = torch.zeros((1, 1), dtype=torch.int64, device=base.device)
    with base.mixed(Mix()), torch.set_grad_enabled(train):
        hidden = base.hidden(ids)
        if train:
            torch.autograd.backward([hidden], [torch.zeros_like(hidden)])


def _want_gradient(module: nn.Module, arguments: object, embedded: Tensor) -> None:
    """So that the way back goes through all layers, whichever of them the adapters of this rank's rows change."""
    if torch.is_grad_enabled():
        embedded.requires_grad_()
