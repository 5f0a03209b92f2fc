"""Datums that begin alike, run once, against the same datums as separate rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import GradientNotFinite
from openrl.domain.outcome import BatchResult
from openrl.domain.run import LoraSpec
from openrl.domain.tensor import Tensor as Array
from workers.model import prefixes
from workers.model.base import BaseModel
from workers.model.prefixes import stems
from workers.train import pack
from workers.train.engine import Batch, TrainEngine
from workers.train.estimate import Load
from workers.train.memory import kept_bytes
from workers.train.packing import Pass

LOSSES = [Loss.CROSS_ENTROPY, Loss.IMPORTANCE_SAMPLING, Loss.PPO]
SPECS = {
    "one": LoraSpec(rank=4, seed=1),
    "two": LoraSpec(rank=2, seed=2, train_unembed=False),
    "head": LoraSpec(rank=3, seed=3, train_attn=False, train_mlp=False),
}
#: Of the largest gradient. The tiny Gemma rounds roughly: there even a pass for each row differs by 2e-5 from one pass.
TOLERANCE = {"llama": 1e-5, "qwen2": 1e-5, "gemma3": 4e-5}
MIXED = (5, 1, 12, 7, 3, 12, 5, 9)
PROMPT = 11


class Engines:
    """Two engines on the same weights: one folds and says which passes it ran, the other never does."""

    def __init__(self, make_module: Callable[[str], PreTrainedModel], family: str, **options: int) -> None:
        self.folding, self.plain = (TrainEngine(BaseModel(make_module(family), "tiny"), **options) for _ in range(2))
        assert self.folding.base.folds
        self.tolerance = TOLERANCE[family]
        self.plain.base.folds = False
        for engine in (self.folding, self.plain):
            for name, spec in SPECS.items():
                engine.create(name, spec)
                run = engine.run(name)
                generator = torch.Generator().manual_seed(spec.rank)
                run.weights += torch.randn(run.shape.size, generator=generator) * 0.05

    def without_gradients(self) -> "Engines":
        for engine in (self.folding, self.plain):
            for name in SPECS:
                engine.run(name).grad = None
        return self

    def agree(self, batches: Sequence[Batch]) -> None:
        found, wanted = self.folding.forward_backward(batches), self.plain.forward_backward(batches)
        for one, other in zip(found, wanted, strict=True):
            assert isinstance(one, BatchResult) and isinstance(other, BatchResult)
            assert one.metrics == pytest.approx(other.metrics, rel=1e-5, abs=1e-4)
            for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
                assert mine.shape == theirs.shape
                torch.testing.assert_close(floats(mine), floats(theirs), rtol=1e-5, atol=1e-5)
        for name in {batch.run_id for batch in batches}:
            self.agree_on(name)

    def agree_on(self, run: str) -> None:
        mine, theirs = self.folding.run(run).grad, self.plain.run(run).grad
        assert (mine is None) is (theirs is None)
        if mine is not None and theirs is not None:
            assert float((mine - theirs).abs().max()) < self.tolerance * float(theirs.abs().max())


@pytest.fixture(scope="module")
def engines(make_module: Callable[[str], PreTrainedModel]) -> Callable[..., Engines]:
    """Each made once, for passes change no weights; handed out without gradients."""
    made = cache(partial(Engines, make_module))
    return lambda family, **options: made(family, **options).without_gradients()


@pytest.fixture(autouse=True, params=[0, 10**9], ids=["in bands", "whole"])
def attending(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in both of the ways that `bands` chooses from."""
    monkeypatch.setattr(prefixes, "PRODUCT", request.param)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Pass]:
    """Fills with the passes of engines that fold."""
    ran: list[Pass] = []
    run = pack.Pack.run

    def noted(self: pack.Pack, one: Pass) -> bool:
        if self._base.folds:
            ran.append(one)
        return run(self, one)

    monkeypatch.setattr(pack.Pack, "run", noted)
    return ran


def floats(values: Array) -> Tensor:
    return torch.frombuffer(bytearray(values.data), dtype=torch.float32).view(values.shape)


def texts(make: Any, lengths: Sequence[int], prompt: int = PROMPT) -> list[Tensor]:
    start = make.ints(prompt)
    return [torch.cat([start, make.ints(length)]) for length in lengths]


def batch(make: Any, run: str, loss: Loss, rows: Sequence[Tensor], **options: Any) -> Batch:
    """Every datum with targets and weights of its own, in the shared part too."""
    return Batch(run_id=run, loss=loss, data=[datum(make, loss, row) for row in rows], **options)


def datum(make: Any, loss: Loss, row: Tensor, choices: int | None = None) -> Datum:
    like = make.datum(loss, len(row), choices)
    tokens = replace(like.tokens, shape=(len(row),), data=row.int().numpy().tobytes())
    return replace(like, tokens=tokens)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("lengths", [(6,) * 8, MIXED], ids=["equal", "mixed"])
def test_a_group_of_eight_equals_separate_rows(
    make: Any,
    engines: Callable[..., Engines],
    family: str,
    loss: Loss,
    lengths: tuple[int, ...],
    passes: list[Pass],
) -> None:
    engines(family).agree([batch(make, "one", loss, texts(make, lengths))])
    assert [(one.folded, len(one.rows)) for one in passes] == [(True, 8)]


@pytest.mark.parametrize("loss", LOSSES)
def test_runs_of_other_ranks_share_the_pass(
    make: Any, engines: Callable[..., Engines], family: str, loss: Loss, passes: list[Pass]
) -> None:
    groups = [
        batch(make, "one", loss, texts(make, MIXED)),
        batch(make, "two", Loss.CROSS_ENTROPY, texts(make, (4, 4, 4))),
        make.batch("head", Loss.DRO, (8, 3, 25), loss_config={"beta": 0.2}),
        batch(make, "one", Loss.PPO, texts(make, (2, 6))),
        batch(make, "head", loss, texts(make, (2, 6, 6))),
    ]
    engines(family).agree(groups)
    assert [one.folded for one in passes] == [True]


def test_two_runs_with_the_same_prompt_share_nothing(
    make: Any, engines: Callable[..., Engines], passes: list[Pass]
) -> None:
    row = make.ints(20)
    engines("llama").agree([batch(make, name, Loss.PPO, [row]) for name in SPECS])
    assert [one.folded for one in passes] == [False]


@pytest.mark.parametrize("loss", LOSSES)
def test_identical_datums_count_each_and_beginnings_of_others_too(
    make: Any, engines: Callable[..., Engines], family: str, loss: Loss, passes: list[Pass]
) -> None:
    row = make.ints(24)
    rows = [row, row[:13], row, row[:13], row[:1], torch.cat([row[:20], make.ints(6)])]
    engines(family).agree([batch(make, "one", loss, rows)])
    assert [one.folded for one in passes] == [True]


def test_prompts_within_prompts_and_recomputed_layers(
    make: Any, engines: Callable[..., Engines], family: str, passes: list[Pass]
) -> None:
    turns = [torch.cat([first, *rest]) for first in texts(make, (8, 8), 10) for rest in ([make.ints(5)],) * 2]
    rows = [torch.cat([turn, make.ints(3)]) for turn in turns for _ in range(3)]
    whole = engines(family)
    whole.agree([batch(make, "one", Loss.PPO, rows)])
    member = (batch(make, "one", Loss.PPO, rows), whole.folding.run("one").shape)
    load = Load(
        rows=12,
        longest=max(map(len, rows)),
        tokens=sum(stem.tokens for stem in stems(sorted(row.int().numpy().tobytes() for row in rows))),
        targets=sum(map(len, rows)),
    )
    enough = kept_bytes(member) + whole.folding.memory.need([member], load, recompute=True)
    engines(family, memory_bytes=enough).agree([member[0]])
    assert [(one.folded, one.recompute, len(one.rows)) for one in passes] == [(True, False, 12), (True, True, 12)]


@pytest.mark.parametrize("pack_tokens", [60, 30, 1])
def test_groups_beyond_a_pass_are_cut(make: Any, engines: Callable[..., Engines], pack_tokens: int) -> None:
    batches = [batch(make, name, Loss.PPO, texts(make, MIXED)) for name in SPECS]
    engines("gemma3", pack_tokens=pack_tokens).agree(batches)


def test_several_targets_per_token(make: Any, engines: Callable[..., Engines], passes: list[Pass]) -> None:
    first, second, third = texts(make, (3, 4, 2))
    data = [datum(make, Loss.CROSS_ENTROPY, row, choices) for row, choices in ((first, 3), (second, None), (third, 2))]
    engines("qwen2").agree([Batch(run_id="one", loss=Loss.CROSS_ENTROPY, data=data)])
    assert [one.folded for one in passes] == [True]


def test_forward_only_folds_too(make: Any, engines: Callable[..., Engines], passes: list[Pass]) -> None:
    engines("llama").agree([batch(make, "one", Loss.PPO, texts(make, MIXED), forward_only=True)])
    assert [one.folded for one in passes] == [True]


def test_not_a_number_in_a_shared_part_fails_its_own_batch_only(make: Any, engines: Callable[..., Engines]) -> None:
    pair = engines("llama")
    fine, bad = (batch(make, name, Loss.PPO, texts(make, MIXED)) for name in ("one", "two"))
    advantages = floats(bad.data[0].inputs["advantages"])
    advantages[2] = torch.nan
    spoiled = replace(bad.data[0].inputs["advantages"], data=advantages.numpy().tobytes())
    data = [replace(bad.data[0], inputs=bad.data[0].inputs | {"advantages": spoiled}), *bad.data[1:]]
    results = pair.folding.forward_backward([fine, replace(bad, data=data)])
    assert isinstance(results[1], GradientNotFinite) and pair.folding.run("two").grad is None
    pair.plain.forward_backward([fine])
    pair.agree_on("one")


def test_chunks_of_the_head_cut_where_they_like(
    make: Any, engines: Callable[..., Engines], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.train.logprobs.CHUNK_ELEMENTS", {"cpu": 3 * 97})
    engines("llama").agree([batch(make, "one", Loss.PPO, texts(make, MIXED))])


def test_a_family_that_hides_the_folding_from_its_attention_is_run_as_rows(
    make_module: Callable[[str], PreTrainedModel],
) -> None:
    module = make_module("llama")
    layer: Any = module.get_decoder().layers[0].self_attn
    forward = layer.forward

    def without(*args: Any, folding: object = None, **kw: Any) -> Any:
        return forward(*args, **kw)

    layer.forward = without
    assert not BaseModel(module, "tiny").folds


def test_a_family_that_hides_its_window_from_its_attention_is_run_as_rows(
    make_module: Callable[[str], PreTrainedModel],
) -> None:
    module = make_module("gemma3")
    layer: Any = module.get_decoder().layers[0].self_attn
    layer.sliding_window = None
    assert not BaseModel(module, "tiny").folds
