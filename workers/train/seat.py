"""The place of a worker for a run of all weights: such a run is large, so there is one. Decides by memory."""

from collections.abc import Callable, Mapping
from threading import Lock

import torch

from openrl.domain.errors import FullRunTaken, FullRunWontFit
from workers.model.base import BaseModel
from workers.model.model_files import parameters
from workers.train.full import FullRun

#: Float32 values of each weight: the weight, two moments, the gradient, and the gradient of the batch at work.
FLOATS = 5


class Seat:
    """The one place of a worker for a full run. `free_bytes` tells how much memory may still be taken.

    `create` copies the base model and is for the thread that runs it; the rest for any, while no call is at work on the
    run. The run is not counted among those that are paged (`paging.py`): it may be larger than all that they may take,
    and nobody's need of room but that of another full run makes it leave."""

    def __init__(self, base: BaseModel, free_bytes: Callable[[], int]) -> None:
        self._base, self._free_bytes = base, free_bytes
        self._lock = Lock()
        self._holder: str | None = None
        self._run: FullRun | None = None

    @property
    def holder(self) -> str | None:
        """The run that has it, or is about to."""
        return self._holder

    def reserve(self, run_id: str) -> bool:
        """Have it kept for a run; False where another has it."""
        with self._lock:
            if self._holder not in (None, run_id):
                return False
            self._holder = run_id
            return True

    def run(self, run_id: str) -> FullRun | None:
        """The run, if it sits here."""
        return self._run if self._holder == run_id else None

    def create(self, run_id: str) -> FullRun:
        """A run with the base model's weights, in place of one of that id. Raises FullRunTaken, FullRunWontFit."""
        if not self.reserve(run_id):
            raise FullRunTaken
        self._empty()
        try:
            self.check()
            self._run = FullRun(self._base.copied())
        except Exception:
            self.drop(run_id)
            raise
        return self._run

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """A run with the weights in `files`, created if it is not there. Where that fails, one of that id stays as it
        was. Raises FullRunTaken, FullRunWontFit, WeightsUnsupported."""
        self._filled(run_id, lambda run: run.load(files, with_optimizer=with_optimizer))

    def restore(self, run_id: str, files: Mapping[str, bytes]) -> None:
        """The same with the files of a snapshot, from which the run goes on exactly."""
        self._filled(run_id, lambda run: run.restore(files))

    def drop(self, run_id: str) -> None:
        """The seat is free again, if it was that run's."""
        if self._holder == run_id:
            self._empty()
            self._holder = None

    def check(self) -> None:
        """Raises FullRunWontFit where the memory for a run is not there."""
        if self._base.device.type == "cuda":
            torch.cuda.empty_cache()  # what PyTorch keeps for later is free too
        needed, free = needed_bytes(self._base), self._free_bytes()
        if needed > free:
            raise FullRunWontFit(needed, free)

    def _filled(self, run_id: str, fill: Callable[[FullRun], None]) -> None:
        standing = self.run(run_id)
        run = standing or self.create(run_id)
        try:
            fill(run)
        except Exception:
            if standing is None:
                self.drop(run_id)
            raise

    def _empty(self) -> None:
        if self._run is not None:
            self._run.release()
            self._run = None


def needed_bytes(base: BaseModel) -> int:
    """What a full run takes beside the base model; a pass takes more, as for any run."""
    weights = sum(each.numel() for each in parameters(base).values())
    rounded = 0 if base.dtype is torch.float32 else base.dtype.itemsize
    return weights * (FLOATS * torch.float32.itemsize + rounded)
