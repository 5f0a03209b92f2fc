import pytest

from openrl.domain.errors import SettingInvalid
from openrl.domain.worker import Role
from workers.sample import choice


@pytest.fixture(params=[True, False])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(choice, "find_spec", lambda name: object() if request.param else None)
    return bool(request.param)


@pytest.mark.parametrize("role", [Role.DEVICE, Role.TRAIN, Role.SAMPLE])
@pytest.mark.parametrize("device", ["cpu", "mps", "cuda"])
def test_by_itself_vllm_is_chosen_on_cuda_where_it_is_installed_to_sample_only(
    installed: bool, role: Role, device: str
) -> None:
    expected = "vllm" if (installed, role, device) == (True, Role.SAMPLE, "cuda") else "torch"
    assert choice.choose_engine("auto", role, device)[0] == expected
    assert choice.choose_engine("torch", role, device) == ("torch", "as set")


def test_vllm_can_be_asked_for_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: object())
    assert choice.choose_engine("vllm", Role.SAMPLE, "cpu") == ("vllm", "as set")


def test_vllm_asked_for_where_it_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(SettingInvalid, match=r"OPENRL_SAMPLE__ENGINE: vllm is not installed.*pip install"):
        choice.choose_engine("vllm", Role.SAMPLE, "cuda")


def test_a_worker_that_trains_does_not_sample_with_vllm(installed: bool) -> None:
    with pytest.raises(SettingInvalid, match=r"OPENRL_SAMPLE__ENGINE: vllm samples in workers of its own"):
        choice.choose_engine("vllm", Role.DEVICE, "cuda")
    assert choice.choose_engine("vllm", Role.TRAIN, "cuda")[0] == "torch", "the setting may be everybody's"
