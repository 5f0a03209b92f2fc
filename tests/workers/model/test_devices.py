import pytest
import torch

from openrl.domain.errors import SettingInvalid
from workers.model import devices

CPU = torch.device("cpu")


def test_bfloat16_is_chosen_only_where_the_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: True)
    assert devices.choose_dtype("auto", CPU) is torch.bfloat16
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: False)
    assert devices.choose_dtype("auto", CPU) is torch.float32
    assert devices.choose_dtype("auto", torch.device("cuda")) is torch.bfloat16
    assert devices.choose_dtype("bfloat16", CPU) is torch.bfloat16


def test_wishes_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(SettingInvalid, match="OPENRL_WORKER__DEVICE"):
        devices.choose_device("tpu")
    with pytest.raises(SettingInvalid, match="OPENRL_WORKER__DTYPE"):
        devices.choose_dtype("float16", CPU)


def test_threads_are_set_and_told() -> None:
    before = torch.get_num_threads()
    try:
        assert devices.set_threads(1) == 1 and torch.get_num_threads() == 1
        assert devices.set_threads(0) == devices.usable_cores()
        assert devices.set_threads(6, engines=2) == 3 and torch.get_num_threads() == 3
        assert devices.set_threads(1, engines=2) == 1
    finally:
        torch.set_num_threads(before)


def test_engines_run_side_by_side_on_the_cores_of_a_cpu_only() -> None:
    assert devices.side_by_side(torch.device("cpu"), 2)
    assert not devices.side_by_side(torch.device("cpu"), 1)
    assert not devices.side_by_side(torch.device("cuda"), 8)


def test_tf32_is_as_wished_and_the_cpu_multiplies_exactly_all_the_same() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for wish, precision in ((True, "tf32"), (False, "ieee")):
            devices.set_tf32(wish)
            assert torch.backends.cuda.matmul.fp32_precision == precision
            assert torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
