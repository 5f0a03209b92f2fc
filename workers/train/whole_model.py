"""A whole model as what learns in a pack, with the gradient of its head written by hand."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.model.lora import Mix
from workers.train.full import FullRun
from workers.train.learners import Stretch
from workers.train.logprobs import HeadPart


class WholeModel:
    """The only learner of a pack with one batch, see `learners.Learners`."""

    def __init__(self, run: FullRun, *, train: bool) -> None:
        self._run = run
        run.gathering = torch.zeros_like(run.weights) if train else None
        self._gradient = run.gathering

    def kind(self, batch: int) -> int:
        return 0

    def mix(self, rows: Sequence[Stretch]) -> Mix:
        return Mix()

    def on_head(self, tokens: Sequence[Stretch]) -> list[HeadPart]:
        flat = self._run.gathering
        if flat is None:
            return []
        head = self._run.model.unembed
        weight = self._run.part_of(head.weight, flat)
        bias = None if head.bias is None else self._run.part_of(head.bias, flat)
        return [HeadPart(tokens[0].start, tokens[-1].stop, HeadWeights(weight, bias))]

    def gradient(self, batch: int) -> Tensor:
        assert self._gradient is not None, "gradients are asked of training packs only"
        return self._gradient

    def forget(self, batch: int) -> None:
        if self._gradient is not None:
            self._gradient.zero_()
            self._run.clear()

    def close(self) -> None:
        self._run.clear()
        self._run.gathering = self._gradient = None


class HeadWeights:
    """The head's own weight [vocab, width] and bias as something that learns, see `logprobs.HeadLayer`: here are their
    gradients, float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def add_delta(self, x: Tensor, y: Tensor) -> Tensor:
        return x  # the logits have it all

    def add_gradients(self, x: Tensor, inner: Tensor, slope: Tensor, back: Tensor | None) -> None:
        if x.dtype is self._weight.dtype:
            self._weight.addmm_(slope.mT, x)
        else:
            self._weight.add_(slope.mT @ x)
        if self._bias is not None:
            self._bias.add_(slope.sum(0))
