"""What the ranks of a group say to each other: bytes, numbers and sums of tensors. Knows no verbs, runs or packs.

All ranks must call the same methods in the same order. Bytes travel over gloo, tensors over the device's own backend.
Waiting for rank 0 to speak has no limit, since it may have nothing to do (`pulse.py` notices its death); every other
wait has one.
"""

import zlib
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

#: A longer message goes in pieces of this many bytes.
PIECE = 2**28
FOREVER = timedelta(days=3650)


class OutOfStep(RuntimeError):
    """Ranks that should have done the same did not. Facts: this rank's outcome."""


class Link:
    """Made by all ranks together, once a default process group is there."""

    def __init__(self, wait_seconds: float) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._calls = dist.new_group(backend="gloo", timeout=FOREVER)
        self._talk = dist.new_group(backend="gloo", timeout=timedelta(seconds=wait_seconds))

    def send(self, data: bytes | memoryview) -> None:
        """Rank 0 to all others, who `receive` it."""
        self._from_first(torch.tensor([len(data)]))
        for start in range(0, len(data), PIECE):
            self._from_first(_tensor(data[start : start + PIECE]))

    def receive(self) -> bytes:
        """What rank 0 sends, however long that takes."""
        size = torch.zeros(1, dtype=torch.int64)
        self._from_first(size)
        data = torch.empty(int(size), dtype=torch.uint8)
        for start in range(0, len(data), PIECE):
            self._from_first(data[start : start + PIECE])
        return data.numpy().tobytes()

    def meet(self) -> None:
        """Returns once all ranks are here, however long that takes."""
        dist.barrier(self._calls)

    def exchange(self, data: bytes) -> list[bytes]:
        """Everybody's bytes, in the order of ranks."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self._talk)
        longest = max(int(size) for size in sizes)
        found = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world)]
        dist.all_gather(found, _tensor(data.ljust(longest, b"\0")), group=self._talk)
        return [each[: int(size)].numpy().tobytes() for each, size in zip(found, sizes, strict=True)]

    def most(self, number: int) -> int:
        """The largest of everybody's numbers."""
        found = torch.tensor([number])
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._talk)
        return int(found)

    def agree(self, outcome: str) -> None:
        """Raises OutOfStep where the outcomes of the ranks differ."""
        mark = zlib.crc32(outcome.encode())
        found = torch.tensor([mark, -mark])
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._talk)
        if found.tolist() != [mark, -mark]:
            raise OutOfStep(outcome)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Each tensor becomes, in place, the sum of everybody's: to the bit the same one on all ranks."""
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            assert work is not None, "every rank is in the default group"
            work.wait()

    def _from_first(self, tensor: Tensor) -> None:
        dist.broadcast(tensor, src=0, group=self._calls)


def _tensor(data: bytes | memoryview) -> Tensor:
    """Bytes with their own memory: torch warns of tensors over read-only memory."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
