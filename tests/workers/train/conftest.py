"""Tiny random models of several families, an engine on one, and random datums."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from openrl.domain.datum import Datum, Loss
from openrl.domain.tensor import DType, Tensor
from workers.model.base import BaseModel
from workers.train.engine import Batch, TrainEngine

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


def _llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, eos_token_id=[2, 5]))


def _qwen() -> PreTrainedModel:
    sizes = {key: value for key, value in SIZES.items() if key != "head_dim"}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, tie_word_embeddings=True))


def _gemma() -> PreTrainedModel:
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


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {"llama": _llama, "qwen2": _qwen, "gemma3": _gemma}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def make_module() -> Callable[[str], PreTrainedModel]:
    """A fresh float32 model of a family; the same weights every time."""

    def make(family: str) -> PreTrainedModel:
        torch.manual_seed(7)
        module = FAMILIES[family]().eval()
        module.set_attn_implementation("sdpa")
        return module

    return make


@pytest.fixture
def base(make_module: Callable[[str], PreTrainedModel]) -> BaseModel:
    return BaseModel(make_module("llama"), "tiny")


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Data:
    """Makes random datums that suit a loss, from numbers that a test can also use itself."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(11)

    def ints(self, *shape: int) -> torch.Tensor:
        return torch.randint(0, SIZES["vocab_size"], shape, generator=self.generator)

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
