import pytest
import torch

from workers.model.allocation import available_bytes, let_go, ran_out


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 18 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_errors_of_allocators_are_known(error: Exception) -> None:
    assert ran_out(error)


@pytest.mark.parametrize("error", [RuntimeError("shapes do not match"), ValueError("out of memory"), KeyError("x")])
def test_other_errors_are_not_taken_for_them(error: Exception) -> None:
    assert not ran_out(error)


def test_pytorch_itself_fails_in_a_way_that_is_known() -> None:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**60)
    assert ran_out(failure.value)


def test_the_machine_has_memory_and_letting_go_takes_none() -> None:
    cpu = torch.device("cpu")
    let_go(cpu)
    assert available_bytes(cpu) > 0
