"""What one training run owns on the device: its adapter, its pending gradient, its optimizer."""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from openrl.domain.run import LoraSpec
from workers.model.layout import LoraShape, ModelLayout


class Trained(Protocol):
    """Flat float32 weights with their optimizer, whatever they are the weights of."""

    weights: Tensor
    m: Tensor
    v: Tensor
    step: int
    grad: Tensor | None


@dataclass(slots=True)
class RunState:
    """Flat float32 vectors of `shape.size` elements. `m` and `v` are Adam's moments, `step` the updates so far."""

    shape: LoraShape
    weights: Tensor
    m: Tensor
    v: Tensor
    step: int = 0
    grad: Tensor | None = None  #: summed since the last optimizer step; None when there was no backward pass
    seed: int | None = None  #: of the initial weights; None for loaded ones

    def add_grad(self, grad: Tensor) -> None:
        """Adds a gradient, or keeps `grad` itself if it is the first: the caller gives it away."""
        self.grad = grad if self.grad is None else self.grad.add_(grad)

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """Weights, moments and, if there is one, the gradient."""
        return (self.weights, self.m, self.v) if self.grad is None else (self.weights, self.m, self.v, self.grad)

    @property
    def size_bytes(self) -> int:
        """What it takes now."""
        return sum(vector.nbytes for vector in self.vectors)

    @property
    def most_bytes(self) -> int:
        """What it takes while it trains: with a gradient."""
        return 4 * self.weights.nbytes

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "RunState":
        """The same run with every vector put through a function."""
        grad = None if self.grad is None else change(self.grad)
        return replace(self, weights=change(self.weights), m=change(self.m), v=change(self.v), grad=grad)

    @classmethod
    def fresh(cls, layout: ModelLayout, lora: LoraSpec) -> "RunState":
        """A new adapter that changes nothing yet, as PEFT starts one; on the CPU. No seed means a random one, kept in
        `seed`."""
        shape = LoraShape.of(layout, lora)
        seed = secrets.randbits(63) if lora.seed is None else lora.seed
        return cls.holding(shape, first_weights(shape, seed), seed=seed)

    @classmethod
    def holding(cls, shape: LoraShape, weights: Tensor, *, seed: int | None = None) -> "RunState":
        """A run with these weights and an optimizer that has not stepped."""
        return cls(shape, weights, torch.zeros_like(weights), torch.zeros_like(weights), seed=seed)


def first_weights(shape: LoraShape, seed: int) -> Tensor:
    """A is Kaiming-uniform (a = √5), uniform in ±1/√in_features, B zero. Drawn on the CPU: the same everywhere."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.zeros(shape.size)
    for target in shape.targets:
        bound = 1 / math.sqrt(target.in_features)
        flat[shape.parts(target.name)[0]].uniform_(-bound, bound, generator=generator)
    return flat
