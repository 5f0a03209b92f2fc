"""What a head of 262,144 tokens adds to the memory of the model before it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from openrl.domain.datum import Loss
from openrl.domain.outcome import BatchResult
from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.model.spans import Span, SpanMix, TrainingAdapter
from workers.train.engine import TrainEngine

ROWS, LENGTH, VOCAB = 8, 1024, 262_144
HEAD_SHARE = 1.3  #: at most so many times the memory of the layers alone


@pytest.mark.live  # ten seconds of products with the head
def test_a_large_head_takes_little_beside_the_layers(make: Any, peak: Callable[[Callable[[], object]], int]) -> None:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=192,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
    )
    base = BaseModel(LlamaForCausalLM(config), "wide")
    engine = TrainEngine(base)
    engine.create("one", LoraSpec(rank=8, train_unembed=False))
    run = engine.run("one")

    def layers_alone() -> None:
        adapter = TrainingAdapter(run.shape, run.weights, train=True)
        with base.mixed(SpanMix([Span(0, ROWS, adapter)])):
            hidden = base.hidden(torch.zeros(ROWS, LENGTH, dtype=torch.int64))
            hidden.backward(torch.ones_like(hidden))  # type: ignore[no-untyped-call]  # torch does not annotate it

    def whole() -> None:
        batch = make.batch("one", Loss.CROSS_ENTROPY, [LENGTH] * ROWS)
        assert isinstance(engine.forward_backward([batch])[0], BatchResult)

    alone, together = peak(layers_alone), peak(whole)
    assert engine.memory.counts.passes == 1 and engine.memory.counts.recomputed == 0
    assert together <= HEAD_SHARE * alone, f"{together / alone:.2f}"
    assert together < ROWS * LENGTH * VOCAB  # bytes; the logits of all tokens would be four times that
