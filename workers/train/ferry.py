"""Carries runs between the device and main memory, from any thread, beside the passes. Knows no ops and no budgets."""

import torch
from torch import Tensor

from workers.train.run_state import RunState


class Ferry:
    """Where the device is CUDA it copies on a stream of its own, to and from pinned memory: passes go on meanwhile, and
    only the thread that asked waits. Elsewhere device and main memory are one, or are copied between in one go."""

    def __init__(self, device: torch.device, *, tiers: bool = True) -> None:
        """Without `tiers`, main memory is none even where the device has its own."""
        self._device = device
        self._stream = _stream(device) if tiers and device.type == "cuda" else None

    @property
    def apart(self) -> bool:
        """Whether the device has memory of its own, so that main memory is a tier."""
        return self._stream is not None

    def to_device(self, run: RunState) -> RunState:
        """The run on the device; the same one if it is there."""
        if run.weights.device.type == self._device.type:
            return run
        if self._stream is None:
            return run.mapped(lambda vector: vector.to(self._device))
        with torch.cuda.stream(self._stream):
            moved = run.mapped(lambda vector: vector.to(self._device, non_blocking=True))
        self._stream.synchronize()
        passes = torch.cuda.default_stream(self._device)
        for vector in moved.vectors:  # memory of this stream: not to be given out again before the passes are through
            vector.record_stream(passes)
        return moved

    def to_host(self, run: RunState) -> RunState:
        """The run in pinned memory. No op of it may be at work."""
        assert self._stream is not None, "there is no memory apart from the device's"
        self._stream.wait_stream(torch.cuda.default_stream(self._device))
        with torch.cuda.stream(self._stream):
            moved = run.mapped(_pinned)
        self._stream.synchronize()
        return moved


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves its arguments untyped


def pinned_bytes(size: int) -> int:
    """What a block of pinned memory really takes: torch rounds it up to a power of two and keeps it for the next."""
    return 1 << (size - 1).bit_length()


def _pinned(vector: Tensor) -> Tensor:
    return torch.empty_like(vector, device="cpu", pin_memory=True).copy_(vector, non_blocking=True)
