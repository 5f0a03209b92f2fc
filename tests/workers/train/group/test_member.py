import pytest
import torch

from openrl.domain.errors import SettingInvalid
from workers.train.group.member import device_of
from workers.train.group.place import Place

PLACE = Place(rank=5, world=8, local_rank=1, local_world=4, host="first")


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 4)
    assert device_of(PLACE, "auto") == torch.device("cuda", 1)
    assert device_of(PLACE, "cpu") == torch.device("cpu")


def test_too_few_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    with pytest.raises(SettingInvalid, match="4 processes need as many GPUs; this machine has 2"):
        device_of(PLACE, "cuda")


def test_without_gpus_a_group_computes_on_the_cpu_and_never_on_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert device_of(PLACE, "auto") == torch.device("cpu")
    with pytest.raises(SettingInvalid, match="cuda or cpu"):
        device_of(PLACE, "mps")
