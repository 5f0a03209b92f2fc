"""A run that trains all weights of the base model: its own copy of the model, its optimizer, its gradient.

The base model itself stays as it is: LoRA runs and samples beside this one never see these weights.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from openrl.domain.run import AdamParams
from workers.model.base import BaseModel
from workers.model.layout import WholeShape
from workers.model.model_files import from_files, parameters, to_files
from workers.train import adam, checkpoint_files, full_snapshot


class FullRun:
    """Flat float32 vectors over all parameters in the model's order, each once however it is tied. `m` and `v` are
    Adam's moments, `step` the updates so far, `grad` what was summed since the last one (None: no backward pass).

    `model` computes with these weights: with the very vector where it is a float32 model, else with a rounded copy.
    """

    def __init__(self, model: BaseModel) -> None:
        """Takes `model` over."""
        self.model = model
        found = parameters(model)
        ends = list(accumulate(each.numel() for each in found.values()))
        self._parts = {name: slice(*pair) for name, pair in zip(found, pairwise((0, *ends)), strict=True)}
        self._tied = model.dtype is torch.float32
        self.shape = WholeShape(size=ends[-1], largest=max(each.numel() for each in found.values()))
        self.weights = torch.empty(ends[-1], device=model.device)
        for name, each in found.items():
            self._adopt(name, each)
        self.m, self.v = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.step = 0
        self.grad: Tensor | None = None
        self.gathering: Tensor | None = None  #: flat, where backward passes add their gradients
        self._hooks = [self._hooked(name, each) for name, each in found.items()]

    def add_grad(self, grad: Tensor) -> None:
        """Adds a gradient, or keeps `grad` itself if it is the first: the caller gives it away."""
        self.grad = grad if self.grad is None else self.grad.add_(grad)

    def optim_step(self, params: AdamParams) -> dict[str, float]:
        """See `adam.step`."""
        metrics = adam.step(self, params)
        self._publish()
        return metrics

    def part_of(self, parameter: Tensor, flat: Tensor) -> Tensor:
        """The view of a flat vector that belongs to one of the model's own parameters."""
        return next(
            flat[self._parts[name]].view_as(each) for name, each in parameters(self.model).items() if each is parameter
        )

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector in the parameters' shapes."""
        return {name: flat[self._parts[name]].view_as(each) for name, each in parameters(self.model).items()}

    def clear(self) -> None:
        """Gradients of a backward pass that broke off on their way to `gathering`."""
        for each in parameters(self.model).values():
            each.grad = None

    def release(self) -> None:
        """Give the memory back now; a model's own circles would keep it for a while."""
        for hook in self._hooks:
            hook.remove()
        for each in parameters(self.model).values():
            each.data = each.data.new_empty(0)
        self.weights = self.m = self.v = self.weights.new_empty(0)
        self.grad = self.gathering = None

    # ------------------------------------------------------------------------------------------------ files
    def policy(self) -> dict[str, bytes]:
        """The weights in the dtype that the base model is sampled in."""
        return to_files(self.model, self.named(self.weights), self.model.dtype)

    def checkpoint(self) -> dict[str, bytes]:
        """A Hugging Face folder with float32 weights, and the optimizer beside it."""
        files = to_files(self.model, self.named(self.weights), torch.float32)
        return {**files, checkpoint_files.OPTIMIZER: checkpoint_files.optimizer(self)}

    @torch.no_grad()
    def load(self, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """The weights, and the optimizer or a fresh one; the gradient is dropped. Raises WeightsUnsupported, and then
        nothing has changed."""
        weights = from_files(self.model, files)
        state = checkpoint_files.read_optimizer(files, self.weights.shape) if with_optimizer else None
        for name, each in self.named(self.weights).items():
            each.copy_(weights[name])
        self._publish()
        if state is None:
            self.m.zero_(), self.v.zero_()
        else:
            self.m.copy_(state.m), self.v.copy_(state.v)
        self.step, self.grad = 0 if state is None else state.step, None

    def snapshot(self) -> dict[str, memoryview]:
        """All of it, its pending gradient too, from which `restore` goes on exactly."""
        return full_snapshot.write(self)

    @torch.no_grad()
    def restore(self, files: Mapping[str, bytes]) -> None:
        """Becomes what wrote the snapshot. Raises WeightsUnsupported, and then nothing has changed."""
        state = full_snapshot.read(files, self.shape.size)
        for mine, theirs in ((self.weights, state.weights), (self.m, state.m), (self.v, state.v)):
            mine.copy_(theirs)
        self.step, self.grad = state.step, None if state.grad is None else state.grad.to(self.weights.device)
        self._publish()

    # ------------------------------------------------------------------------------------------------ inside
    @torch.no_grad()
    def _adopt(self, name: str, parameter: nn.Parameter) -> None:
        """Its values into the vector; parameters of a float32 model are views of it from then on."""
        mine = self.weights[self._parts[name]].view_as(parameter)
        mine.copy_(parameter)
        if self._tied:
            parameter.data = mine
        parameter.requires_grad_(True)

    @torch.no_grad()
    def _publish(self) -> None:
        """What the model computes with, after the vector has changed."""
        if not self._tied:
            for name, parameter in parameters(self.model).items():
                parameter.copy_(self.weights[self._parts[name]].view_as(parameter))

    def _hooked(self, name: str, parameter: nn.Parameter) -> RemovableHandle:
        """Has the parameter's gradient moved into the flat one after each backward pass, so that passes add up in
        float32."""
        part = self._parts[name]

        def gather(parameter: Tensor) -> None:
            assert self.gathering is not None and parameter.grad is not None
            self.gathering[part].view_as(parameter).add_(parameter.grad)
            parameter.grad = None

        hook: RemovableHandle = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]  # torch's
            gather
        )
        return hook
