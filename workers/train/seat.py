"""The place of a worker for a run of all weights: such a run is large, so there is one. Decides by memory."""

from collections.abc import Callable, Mapping
from copy import deepcopy

import torch

from openrl.domain.errors import FullRunTaken, FullRunWontFit
from workers.model.base import BaseModel
from workers.model.model_files import parameters
from workers.train.full import FullRun

#: Float32 values of each weight: the weight, two moments, the gradient, and the gradient of the batch at work.
FLOATS = 5


class Seat:
    """The one place of a worker for a full run. `free_bytes` tells how much memory may still be taken."""

    def __init__(self, base: BaseModel, free_bytes: Callable[[], int]) -> None:
        self._base, self._free_bytes = base, free_bytes
        self._held: tuple[str, FullRun] | None = None

    @property
    def holder(self) -> str | None:
        """The run that has it."""
        return None if self._held is None else self._held[0]

    def run(self, run_id: str) -> FullRun | None:
        """The run, if it sits here."""
        return self._held[1] if self._held is not None and self._held[0] == run_id else None

    def create(self, run_id: str) -> FullRun:
        """A run with the base model's weights, in place of one of that id. Raises FullRunTaken, FullRunWontFit."""
        self.drop(run_id)
        if self._held is not None:
            raise FullRunTaken
        self.check()
        run = FullRun(deepcopy(self._base))
        self._held = (run_id, run)
        return run

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """A run with the weights in `files`. Where that fails, one of that id stays as it was. Raises FullRunTaken,
        FullRunWontFit, WeightsUnsupported."""
        standing = self.run(run_id)
        run = standing or self.create(run_id)
        try:
            run.load(files, with_optimizer=with_optimizer)
        except Exception:
            if standing is None:
                self.drop(run_id)
            raise

    def drop(self, run_id: str) -> None:
        run = self.run(run_id)
        if run is not None:
            run.release()
            self._held = None

    def check(self) -> None:
        """Raises FullRunWontFit where the memory for a run is not there."""
        needed, free = needed_bytes(self._base), self._free_bytes()
        if needed > free:
            raise FullRunWontFit(needed, free)


def needed_bytes(base: BaseModel) -> int:
    """What a full run takes beside the base model; a pass takes more, as for any run."""
    weights = sum(each.numel() for each in parameters(base).values())
    rounded = 0 if base.dtype is torch.float32 else base.dtype.itemsize
    return weights * (FLOATS * torch.float32.itemsize + rounded)
