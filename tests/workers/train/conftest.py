"""An engine on a tiny model (see the folder above), random datums, and how much memory a call takes."""

import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

from diaries import Worker, World

from openrl.domain.datum import Datum, Loss
from openrl.domain.tensor import DType, Tensor
from workers.model.base import BaseModel
from workers.train.engine import Batch, TrainEngine

VOCAB = 97  #: of the tiny models


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Data:
    """Makes random datums that suit a loss, from numbers that a test can also use itself."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(11)

    def ints(self, *shape: int) -> torch.Tensor:
        return torch.randint(0, VOCAB, shape, generator=self.generator)

    def reals(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def inputs(self, loss: Loss, length: int, choices: int | None = None) -> dict[str, torch.Tensor]:
        if loss is Loss.CROSS_ENTROPY:
            shape = (length,) if choices is None else (length, choices)
            return {"target_tokens": self.ints(*shape), "weights": self.reals(*shape)}
        return {
            "target_tokens": self.ints(length),
            "logprobs": -4.5 + 0.4 * self.reals(length),
            "advantages": self.reals(length),
        }

    def datum(self, loss: Loss, length: int, choices: int | None = None) -> Datum:
        return as_datum(self.ints(length), self.inputs(loss, length, choices))

    def batch(self, run_id: str, loss: Loss, lengths: Sequence[int], **options: Any) -> Batch:
        return Batch(run_id=run_id, loss=loss, data=[self.datum(loss, length) for length in lengths], **options)


def as_datum(tokens: torch.Tensor, inputs: dict[str, torch.Tensor]) -> Datum:
    return Datum(tokens=as_array(tokens.int()), inputs={name: as_array(each) for name, each in inputs.items()})


def as_array(values: torch.Tensor) -> Tensor:
    dtype = {torch.float32: DType.FLOAT32, torch.int64: DType.INT64, torch.int32: DType.INT32}[values.dtype]
    return Tensor(dtype=dtype, shape=tuple(values.shape), data=values.contiguous().numpy().tobytes())


def peak_of(call: Callable[[], object]) -> int:
    """Most bytes of PyTorch's allocator alive at once that `call` took, by its own log: the same every time."""
    with torch.profiler.profile(profile_memory=True, acc_events=False) as profile:
        call()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = profile.profiler.kineto_results.events()
    steps = sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]")
    return max(accumulate(size for _, size in steps))


@pytest.fixture
def peak() -> Callable[[Callable[[], object]], int]:
    return peak_of


@pytest.fixture
def make() -> Data:
    return Data()


@pytest.fixture
def engine(base: BaseModel) -> TrainEngine:
    return TrainEngine(base, name="tiny")


@pytest.fixture
def world(tmp_path: Any) -> World:
    return World(str(tmp_path))


@pytest.fixture
def first(world: World) -> Worker:
    return Worker(world, "first")
