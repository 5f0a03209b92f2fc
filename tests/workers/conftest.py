"""Tiny random models of several families. Torch is imported by the tests that ask for one only."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from workers.model.base import BaseModel

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}


def _llama() -> "PreTrainedModel":
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SIZES, eos_token_id=[2, 5]))


def _qwen() -> "PreTrainedModel":
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {key: value for key, value in SIZES.items() if key != "head_dim"}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, tie_word_embeddings=True))


def _gemma() -> "PreTrainedModel":
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        **SIZES,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
        final_logit_softcapping=5.0,
        query_pre_attn_scalar=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return Gemma3ForCausalLM(config)


FAMILIES: dict[str, Callable[[], "PreTrainedModel"]] = {"llama": _llama, "qwen2": _qwen, "gemma3": _gemma}


@pytest.fixture(scope="session")
def make_module() -> Callable[[str], "PreTrainedModel"]:
    """A fresh float32 model of a family; the same weights every time."""

    def make(family: str) -> "PreTrainedModel":
        import torch

        torch.manual_seed(7)
        module = FAMILIES[family]().eval()
        module.set_attn_implementation("sdpa")
        return module

    return make


@pytest.fixture
def base(make_module: Callable[[str], "PreTrainedModel"]) -> "BaseModel":
    from workers.model.base import BaseModel

    return BaseModel(make_module("llama"), "tiny")


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)
