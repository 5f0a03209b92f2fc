"""Which sample engine a worker runs."""

from importlib.util import find_spec

from openrl.domain.errors import SettingInvalid
from openrl.domain.worker import Role

TORCH, VLLM = "torch", "vllm"
SETTING = "OPENRL_SAMPLE__ENGINE"


def choose_engine(wish: str, role: Role, device: str) -> tuple[str, str]:
    """The engine and why, for `auto`, `torch` or `vllm` on a device of that type. Raises SettingInvalid where it cannot
    be."""
    installed = find_spec(VLLM) is not None
    if wish == TORCH or (wish == VLLM and role is Role.TRAIN):
        return TORCH, "as set" if wish == TORCH else "nothing is sampled here"
    if wish == VLLM:
        if role is Role.DEVICE:
            raise SettingInvalid(
                SETTING, "vllm samples in workers of its own: start `openrl worker train` and `openrl worker sample`"
            )
        if not installed:
            raise SettingInvalid(SETTING, "vllm is not installed here: pip install 'openrl[vllm]' (docs/howto/vllm.md)")
        return VLLM, "as set"
    if role is not Role.SAMPLE:
        return TORCH, "training and sampling share the base weights"
    if not installed:
        return TORCH, "vLLM is not installed"
    if device != "cuda":
        return TORCH, f"the device is {device}; vLLM is chosen by itself on cuda only"
    return VLLM, "installed, on cuda, and this worker samples only"
