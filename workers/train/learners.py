"""What learns in a pack, and where its gradients go. Knows no losses and no order of things."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from workers.model.lora import Mix
from workers.model.spans import LoraLayer, Span, SpanMix, TrainingAdapter
from workers.train.logprobs import HeadPart
from workers.train.run_state import RunState


class Stretch(NamedTuple):
    """Rows or tokens `start` to `stop` of a pass are of batch number `batch`."""

    batch: int
    start: int
    stop: int


class Learners(Protocol):
    """The weights that the batches of one pack train, by batch number."""

    def kind(self, batch: int) -> int:
        """Batches of one kind are computed as blocks where they stand together."""
        ...

    def mix(self, rows: Sequence[Stretch]) -> Mix | SpanMix:
        """What the linear layers obey in a pass with these rows."""
        ...

    def on_head(self, tokens: Sequence[Stretch]) -> list[HeadPart]:
        """What learns on the head, with its tokens."""
        ...

    def gradient(self, batch: int) -> Tensor:
        """All that the passes so far have given a batch, flat float32, for the caller to keep. Of training packs."""
        ...

    def forget(self, batch: int) -> None:
        """As if no pass had given the batch anything."""
        ...

    def close(self) -> None:
        """There are no more passes; gradients that nobody took are given up."""
        ...


class Adapters:
    """Every batch has its own adapter view and gradient, even when two belong to one run: what one batch does to its
    gradient, be it NaN, never touches another's."""

    def __init__(self, runs: Sequence[RunState], head: str, *, train: bool) -> None:
        """`runs` by batch number; `head` is the module path of the model's head."""
        self._head = head
        self._adapters = [TrainingAdapter(run.shape, run.weights, train=train) for run in runs]
        shapes = list(dict.fromkeys(run.shape for run in runs))
        self._kinds = [shapes.index(run.shape) for run in runs]

    def kind(self, batch: int) -> int:
        return self._kinds[batch]

    def mix(self, rows: Sequence[Stretch]) -> SpanMix:
        return SpanMix([Span(start, stop, self._adapters[batch]) for batch, start, stop in rows])

    def on_head(self, tokens: Sequence[Stretch]) -> list[HeadPart]:
        return [
            HeadPart(start, stop, LoraLayer(self._head, [self._adapters[batch]]))
            for batch, start, stop in tokens
            if self._adapters[batch].shape.slices(self._head) is not None
        ]

    def gradient(self, batch: int) -> Tensor:
        grad = self._adapters[batch].grad
        assert grad is not None, "gradients are asked of training packs only"
        return grad

    def forget(self, batch: int) -> None:
        grad = self._adapters[batch].grad
        if grad is not None:
            grad.zero_()

    def close(self) -> None:
        """Nothing: they are this object's own."""
