"""Tiny random models of each family, and engines on them."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SampleResult, SamplingParams, Sequence
from openrl.domain.tensor import Tensor as Raw
from workers.model.attention import NAME as ATTENTION
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.lora import Mix
from workers.sample.request import SampleRequest
from workers.sample.torch.engine import SampleEngine

VOCAB = 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "phi3": {},
    "gemma3_text": {
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "query_pre_attn_scalar": 8,
    },
    "gemma2": {
        "sliding_window": 8,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 9.0,
    },
    "smollm3": {"no_rope_layers": [1, 1, 0]},
    "phi": {},
    "olmo2": {},
    "glm4": {},
    "gemma": {},
    "starcoder2": {"sliding_window": 8},
    "olmo3": {"sliding_window": 8},
}


class Lab:
    """Models, engines and references for the tests of the sample engine."""

    vocab = VOCAB

    def __init__(self) -> None:
        self._engines: list[SampleEngine] = []

    def base(self, family: str = "llama") -> BaseModel:
        return _base(family)

    def fresh(self, family: str = "llama", dtype: torch.dtype = torch.float32) -> BaseModel:
        """A model of one's own, with weights laid out for decoding."""
        base = BaseModel(_made(family).to(dtype), family)
        base.pack(1 << 30)
        return base

    def engine(self, base: BaseModel | None = None, **bounds: Any) -> SampleEngine:
        wanted = {"max_rows": 8, "cache_tokens": 2048, "fetch": nothing, "decode": spell, **bounds}
        self._engines.append(SampleEngine(base or _base("llama"), **wanted))
        return self._engines[-1]

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def ask(self, prompt: Iterable[int], max_tokens: int = 8, **fields: Any) -> SampleRequest:
        names = {"temperature", "top_p", "top_k", "seed", "stop_strings", "stop_tokens", "stop_at_eos"}
        params = {"stop_at_eos": False} | {name: fields.pop(name) for name in names & fields.keys()}
        return SampleRequest(prompt=tuple(prompt), params=SamplingParams(max_tokens=max_tokens, **params), **fields)

    def finish(self, engine: SampleEngine, *futures: "Future[SampleResult]") -> list[SampleResult]:
        for _ in range(10_000):
            if engine.idle:
                return [future.result(timeout=0) for future in futures]
            engine.step()
        raise AssertionError("the engine never got idle")

    def run(self, engine: SampleEngine, *requests: SampleRequest) -> list[SampleResult]:
        return self.finish(engine, *[engine.submit(request) for request in requests])

    def array(self, raw: Raw) -> np.ndarray[Any, Any]:
        return np.frombuffer(raw.data, {"float32": "<f4", "int32": "<i4", "int64": "<i8"}[raw.dtype]).reshape(raw.shape)

    def tokens(self, sequence: Sequence) -> list[int]:
        return self.array(sequence.tokens).tolist()

    def logits(self, base: BaseModel, sequence: list[int], mix: Mix | None = None) -> Tensor:
        """Reference: logits [N, V] after each token of a whole sequence, computed at once."""
        with torch.no_grad(), base.mixed(mix or Mix()):
            return base.head(base.hidden(torch.tensor([sequence]), use_cache=False))[0].float()

    def adapter(self, base: BaseModel, seed: int, rank: int = 4, part: str = "") -> tuple[LoraShape, Tensor]:
        """A random adapter on the linear layers whose path contains `part`."""
        shape = LoraShape(base.layout, rank, [t.name for t in base.layout.targets if part in t.name])
        return shape, torch.randn(shape.size, generator=torch.Generator().manual_seed(seed)) * 0.1


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def lasting_lab() -> Iterator[Lab]:
    """For what the tests of a module share."""
    lab = Lab()
    yield lab
    lab.close()


@cache
def _model(family: str) -> Any:
    return _made(family)


def _made(family: str) -> Any:
    torch.manual_seed(7)
    config = AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    module = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=torch.float32)
    for parameter in module.parameters():  # far from uniform, so that greedy choices and masks matter
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return module.eval()


@cache
def _base(family: str) -> BaseModel:
    return BaseModel(_model(family), family)


def nothing(_: DepotKey) -> Mapping[str, bytes]:
    raise KeyError


def spell(tokens: list[int]) -> str:
    """A toy tokenizer: each token is a letter."""
    return "".join(chr(ord("a") + token % 26) for token in tokens)
