import pytest
import torch

from workers.model.finite import all_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 7, 1000])
def test_one_number_that_is_not_finite_is_found(dtype: torch.dtype, bad: float, at: int) -> None:
    values = (torch.linspace(-1.0, 1.0, 1001) * 3e38).to(dtype)
    assert all_finite(values)
    values[at] = bad
    assert not all_finite(values)
