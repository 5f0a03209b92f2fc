"""An engine whose memory is short, or ends in the middle, against one that has plenty."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from openrl.domain.datum import Loss
from openrl.domain.errors import CallerError, DatumTooLarge, MemoryRanOut
from openrl.domain.outcome import BatchResult
from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.model.spans import LoraLayer
from workers.train.engine import Batch, TrainEngine

SPECS = {"one": LoraSpec(rank=4, seed=1), "two": LoraSpec(rank=2, seed=2, train_unembed=False)}
Modules = Callable[[str], PreTrainedModel]


def engine_of(make_module: Modules, *, memory_bytes: int | None = None, family: str = "llama") -> TrainEngine:
    engine = TrainEngine(BaseModel(make_module(family), "tiny"), memory_bytes=memory_bytes)
    for name, spec in SPECS.items():
        engine.create(name, spec)
        run = engine.run(name)
        run.weights += torch.randn(run.shape.size, generator=torch.Generator().manual_seed(spec.rank)) * 0.05
    return engine


def batches_of(make: Any) -> list[Batch]:
    return [
        make.batch("one", Loss.PPO, (9, 4, 30)),
        make.batch("two", Loss.CROSS_ENTROPY, (12, 3, 7)),
        make.batch("one", Loss.CISPO, (8,)),
        make.batch("two", Loss.PPO, (20, 5), forward_only=True),
    ]


def agree(
    found: Sequence[BatchResult | CallerError], wanted: Sequence[BatchResult | CallerError], *engines: TrainEngine
) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert isinstance(one, BatchResult) and isinstance(other, BatchResult)
        assert one.metrics == pytest.approx(other.metrics, rel=1e-5, abs=1e-4)
        for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
            assert memoryview(mine.data).cast("f").tolist() == pytest.approx(
                memoryview(theirs.data).cast("f").tolist(), rel=1e-4, abs=1e-5
            )
    for name in SPECS:
        mine_grad, their_grad = (engine.run(name).grad for engine in engines)
        assert (mine_grad is None) is (their_grad is None)
        if mine_grad is not None and their_grad is not None:
            atol = 2e-5 * float(their_grad.abs().max())
            torch.testing.assert_close(mine_grad, their_grad, rtol=0, atol=atol)


def breaks_above(engine: TrainEngine, tokens: int) -> list[int]:
    """From now on the second layer finds no memory for more than so many tokens. Fills with the tokens of passes."""
    seen: list[int] = []

    def check(layer: Any, args: tuple[torch.Tensor, ...], kwargs: dict[str, Any]) -> None:
        states = args[0] if args else kwargs["hidden_states"]
        seen.append(states.shape[0] * states.shape[1])
        if seen[-1] > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    engine.base.module.get_decoder().layers[1].register_forward_pre_hook(check, with_kwargs=True)
    return seen


@pytest.mark.parametrize("tokens", [100, 60, 40, 30])
def test_passes_that_run_out_are_split_and_nothing_changes(make: Any, make_module: Modules, tokens: int) -> None:
    short, plenty = engine_of(make_module), engine_of(make_module)
    batches = batches_of(make)
    breaks_above(short, tokens)
    agree(short.forward_backward(batches), plenty.forward_backward(batches), short, plenty)
    assert short.memory.counts.exhausted > 0 == plenty.memory.counts.exhausted


@pytest.mark.parametrize("call", [1, 7, 15, 20])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()], ids=["torch", "host"])
def test_no_part_of_a_gradient_stays_when_a_backward_pass_breaks_off(
    make: Any, make_module: Modules, monkeypatch: pytest.MonkeyPatch, call: int, error: Exception
) -> None:
    short, plenty = engine_of(make_module), engine_of(make_module)
    batches = batches_of(make)
    wanted = plenty.forward_backward(batches)
    calls, add = 0, LoraLayer.add_gradients

    def breaking(self: LoraLayer, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise error
        add(self, *args)

    monkeypatch.setattr(LoraLayer, "add_gradients", breaking)
    agree(short.forward_backward(batches), wanted, short, plenty)
    assert calls > call and short.memory.counts.exhausted == 1


def test_gradients_of_earlier_passes_are_there_once(
    make: Any, make_module: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch takes three passes; the last breaks off in its backward pass."""
    short, plenty = engine_of(make_module), engine_of(make_module)
    short._pack_tokens = 24
    batch = make.batch("two", Loss.CROSS_ENTROPY, (24, 23, 22))
    wanted = plenty.forward_backward([batch])
    calls, add = 0, LoraLayer.add_gradients

    def breaking(self: LoraLayer, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2 * 14 + 5:  # two layers of seven targets a pass
            raise torch.OutOfMemoryError
        add(self, *args)

    monkeypatch.setattr(LoraLayer, "add_gradients", breaking)
    agree(short.forward_backward([batch]), wanted, short, plenty)


def test_a_datum_that_fails_alone_is_its_batchs_error_only(make: Any, make_module: Modules) -> None:
    short, plenty = engine_of(make_module), engine_of(make_module)
    batches = batches_of(make)
    breaks_above(short, 25)  # data[2] of the first has 30
    found = short.forward_backward(batches)
    assert isinstance(found[0], MemoryRanOut) and str(found[0]).startswith("data[2]: memory ran out although its 30 ")
    agree(found[1:], plenty.forward_backward(batches[1:]), short, plenty)


def test_a_pack_that_ran_out_is_planned_smaller_the_next_time(make: Any, make_module: Modules) -> None:
    engine = engine_of(make_module)
    seen = breaks_above(engine, 64)
    batch = make.batch("one", Loss.PPO, (16,) * 24)
    for _ in range(4):
        assert isinstance(engine.forward_backward([batch])[0], BatchResult)
    failures = engine.memory.counts.exhausted
    seen.clear()
    assert isinstance(engine.forward_backward([batch])[0], BatchResult)
    assert engine.memory.counts.exhausted == failures and max(seen) <= 64


def test_errors_of_another_kind_fly_on(make: Any, make_module: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(make_module)

    def broken(*_: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(LoraLayer, "add_gradients", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        engine.forward_backward(batches_of(make))
    assert engine.run("one").grad is None


def test_gradients_that_find_no_room_together_are_made_apart(
    make: Any, make_module: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, plenty = engine_of(make_module), engine_of(make_module)
    batches = batches_of(make)[:3]
    wanted = plenty.forward_backward(batches)
    made = 0

    def scarce(like: torch.Tensor, zeros: Any = torch.zeros_like) -> torch.Tensor:
        nonlocal made
        made += 1
        if made == 3:
            raise torch.OutOfMemoryError
        found: torch.Tensor = zeros(like)
        return found

    monkeypatch.setattr("workers.model.spans.torch.zeros_like", scarce)
    found = short.forward_backward(batches)
    monkeypatch.undo()
    agree(found, wanted, short, plenty)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_small_budget_makes_small_passes_with_the_same_outcome(make: Any, make_module: Modules, family: str) -> None:
    plenty = engine_of(make_module, family=family)
    batches = batches_of(make)
    one_row = max(plenty.memory.portion(plenty._member(batch)).least for batch in batches)
    kept = max(plenty.memory.portion(plenty._member(batch)).kept for batch in batches)
    short = engine_of(make_module, family=family, memory_bytes=kept + one_row)
    agree(short.forward_backward(batches), plenty.forward_backward(batches), short, plenty)
    assert short.memory.counts.passes > plenty.memory.counts.passes
    assert short.memory.counts.recomputed > 0 == plenty.memory.counts.recomputed


def test_a_datum_that_cannot_fit_is_refused_before_anything_is_computed(make: Any, make_module: Modules) -> None:
    plenty = engine_of(make_module)
    batches = batches_of(make)
    portion = plenty.memory.portion(plenty._member(batches[0]))
    short = engine_of(make_module, memory_bytes=portion.kept + portion.least - 1)
    seen = breaks_above(short, 10**9)
    (refused,) = short.forward_backward(batches[:1])
    assert isinstance(refused, DatumTooLarge) and not seen and short.run("one").grad is None
    assert "data[2]: its 30 tokens need" in str(refused) and "OPENRL_TRAIN__MEMORY_GB" in str(refused)
    found = short.forward_backward(batches)
    assert isinstance(found[0], DatumTooLarge)
    agree(found[1:], plenty.forward_backward(batches[1:]), short, plenty)
