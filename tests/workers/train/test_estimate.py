"""Estimates against what passes really took, measured by the allocator's own log."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from openrl.domain.datum import Datum, Loss
from openrl.domain.outcome import BatchResult
from openrl.domain.run import LoraSpec
from openrl.models import tiny
from workers.model.base import BaseModel
from workers.model.size import ModelSize
from workers.train import course
from workers.train.engine import Batch, TrainEngine
from workers.train.estimate import Kernels, Learning, Load, peak_bytes
from workers.train.memory import kept_bytes
from workers.train.packing import Pass
from workers.train.seat import Seat

#: An estimate is never less than what was measured, and at most so many times as much.
FACTOR = 1.5

Engines = Callable[[str, torch.dtype, LoraSpec | None], TrainEngine]
Peak = Callable[[Callable[[], object]], int]
SIZES = {
    "vocab_size": 3000,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
}


def _gemma() -> PreTrainedModel:
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, sliding_window=64, layer_types=kinds, pad_token_id=0))


MODELS: dict[str, Callable[[], Any]] = {
    "tiny": tiny.network,
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "gemma3": _gemma,
}


@pytest.fixture(scope="module")
def engine_of() -> Engines:
    """Engines with one run, each made once: a pass changes none of its weights."""

    @cache
    def make(model: str, dtype: torch.dtype, spec: LoraSpec | None) -> TrainEngine:
        base = BaseModel(MODELS[model]().to(dtype), model)
        engine = TrainEngine(base, pack_tokens=10**9, seat=Seat(base, lambda: 10**12))
        engine.create("one", spec)
        return engine

    return make


LORA = LoraSpec(rank=8)


def measure(engine: TrainEngine, batch: Batch, peak: Peak) -> int:
    def call() -> None:
        assert isinstance(engine.forward_backward([batch])[0], BatchResult)

    learning = engine._learning(batch.run_id)
    if learning.grad is None:
        call()  # what an engine makes once and keeps is not of the pass
    learning.grad = None
    return peak(call)


def texts(make: Any, rows: int, prompt: int, length: int) -> list[Datum]:
    """Datums that share a prompt."""
    data = [make.datum(Loss.PPO, prompt + length) for _ in range(rows)]
    start = data[0].tokens.data[: 4 * prompt]
    return [replace(each, tokens=replace(each.tokens, data=start + each.tokens.data[4 * prompt :])) for each in data]


@pytest.mark.parametrize("way", ["plain", "recomputed", "forward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize(("rows", "length"), [(8, 48), (4, 256), (1, 640)])
def test_a_pass_takes_no_more_than_its_estimate_and_not_much_less(
    make: Any,
    peak: Peak,
    monkeypatch: pytest.MonkeyPatch,
    engine_of: Engines,
    model: str,
    dtype: torch.dtype,
    way: str,
    rows: int,
    length: int,
) -> None:
    engine = engine_of(model, dtype, LORA)
    batch = make.batch("one", Loss.PPO, [length] * rows, forward_only=way == "forward")
    recompute = way == "recomputed"
    monkeypatch.setattr("workers.train.packing._must_recompute", lambda *_: recompute)
    load = Load(rows=rows, longest=length, tokens=rows * length)
    found = measure(engine, batch, peak)
    member = engine._member(batch)
    estimate = kept_bytes(member) + engine.memory.need([member], load, recompute=recompute)
    assert found <= estimate <= FACTOR * found, f"{estimate / found:.2f}"


@pytest.mark.parametrize("way", ["plain", "recomputed", "forward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize(("rows", "length"), [(8, 48), (4, 256)])
def test_a_pass_of_a_full_run_takes_no_more_than_its_estimate(
    make: Any,
    peak: Peak,
    monkeypatch: pytest.MonkeyPatch,
    engine_of: Engines,
    model: str,
    dtype: torch.dtype,
    way: str,
    rows: int,
    length: int,
) -> None:
    engine = engine_of(model, dtype, None)
    batch = make.batch("one", Loss.PPO, [length] * rows, forward_only=way == "forward")
    recompute = way == "recomputed"
    monkeypatch.setattr("workers.train.packing._must_recompute", lambda *_: recompute)
    load = Load(rows=rows, longest=length, tokens=rows * length)
    found = measure(engine, batch, peak)
    member = engine._member(batch)
    estimate = kept_bytes(member) + engine.memory.need([member], load, recompute=recompute)
    assert found <= estimate <= FACTOR * found, f"{estimate / found:.2f}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("model", ["llama", "gemma3"])  # in tiny, scores are all there is, and sharing saves some
def test_a_folded_pass_takes_no_more_than_its_estimate(
    make: Any, peak: Peak, monkeypatch: pytest.MonkeyPatch, engine_of: Engines, model: str, dtype: torch.dtype
) -> None:
    engine = engine_of(model, dtype, LORA)
    batch = Batch(run_id="one", loss=Loss.PPO, data=texts(make, 8, 128, 64))
    ran: list[tuple[Pass, Load]] = []
    run = course.Course.run

    def noted(self: course.Course, one: Pass) -> bool:
        ran.append((one, self._pack.load(one)))
        return run(self, one)

    monkeypatch.setattr(course.Course, "run", noted)
    found = measure(engine, batch, peak)
    one, load = ran[-1]
    assert one.folded and load.tokens == 128 + 8 * 64
    member = engine._member(batch)
    estimate = kept_bytes(member) + engine.memory.need([member], load, recompute=False)
    assert found <= estimate <= 1.2 * FACTOR * found, f"{estimate / found:.2f}"


SIZE = ModelSize(
    layers=4, hidden=64, intermediate=256, heads=8, queries=64, keys=32, vocab=1000, item_bytes=2, window=None
)  # fmt: skip


def need(
    load: Load, *, size: ModelSize = SIZE, keeps: bool = False, train: bool = True, recompute: bool = False
) -> int:
    kernels = Kernels(chunk_elements=2**16, keeps_scores=keeps)
    return peak_bytes(size, load, kernels, Learning(rank=8, largest=8 * 320), train=train, recompute=recompute)


def test_recomputation_and_forward_only_take_less() -> None:
    load = Load(rows=8, longest=128, tokens=1024)
    assert need(load, train=False) < need(load, recompute=True) < need(load)


def test_attention_that_keeps_its_scores_grows_with_the_square() -> None:
    short, long = (Load(rows=1, longest=length, tokens=length) for length in (1000, 10_000))
    assert need(long) < 11 * need(short)
    assert need(long, keeps=True) > 50 * need(short, keeps=True)


def test_the_head_takes_a_chunk_however_many_tokens_there_are() -> None:
    few, many = (Load(rows=1, longest=length, tokens=length) for length in (1000, 2000))
    wide = ModelSize(layers=4, hidden=64, intermediate=256, heads=8, queries=64, keys=32, vocab=10**6, item_bytes=2)
    assert need(many, size=wide) - need(few, size=wide) < need(many) - need(few) + 100
