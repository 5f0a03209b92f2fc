import pytest
import torch

from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.train.ferry import Ferry, pinned_bytes
from workers.train.run_state import RunState

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def run(base: BaseModel) -> RunState:
    run = RunState.fresh(base.layout, LoraSpec(rank=2, seed=1))
    run.grad = torch.randn(run.shape.size)
    return run


def test_a_run_that_is_there_stays_the_same(run: RunState) -> None:
    ferry = Ferry(CPU)
    assert ferry.to_device(run) is run
    assert not ferry.apart


def test_pinned_blocks_are_powers_of_two() -> None:
    assert [pinned_bytes(size) for size in (1, 4, 5, 4096, 4097)] == [1, 4, 8, 4096, 8192]


@pytest.mark.gpu
def test_a_run_goes_to_the_device_and_back_while_passes_go_on(run: RunState) -> None:
    ferry = Ferry(CUDA)
    assert ferry.apart
    there = ferry.to_device(run)
    assert all(vector.is_cuda for vector in there.vectors)
    there.weights.add_(1.0)
    back = ferry.to_host(there)
    assert all(vector.is_pinned() for vector in back.vectors)
    assert torch.equal(back.weights, run.weights + 1.0)
    assert back.grad is not None and run.grad is not None and torch.equal(back.grad, run.grad)
    again = ferry.to_device(back)
    assert torch.equal(again.weights.cpu(), back.weights)


@pytest.mark.gpu
def test_memory_that_a_pass_still_reads_is_not_given_out_again(run: RunState) -> None:
    ferry = Ferry(CUDA)
    sums = []
    for _ in range(50):
        there = ferry.to_device(run)
        sums.append((there.weights.repeat(200).cumsum(0)[-1], there.weights.sum()))
        del there
    assert len({(float(one), float(other)) for one, other in sums}) == 1
