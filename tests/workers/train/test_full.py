"""Runs of all weights against plain PyTorch, and beside runs with adapters."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from transformers import AutoModelForCausalLM, PreTrainedModel

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import (
    CallerError,
    DatumTooLarge,
    FullRunsOff,
    FullRunTaken,
    FullRunWontFit,
    GradientNotFinite,
    MemoryRanOut,
    RunNotFound,
    UpdateNotFinite,
    WeightsUnsupported,
)
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.tensor import DType
from openrl.domain.tensor import Tensor as Array
from workers.model.base import BaseModel
from workers.model.model_files import parameters
from workers.train import adam, full_snapshot, logprobs, packing
from workers.train.engine import Batch, TrainEngine
from workers.train.full import FullRun
from workers.train.full_snapshot import NAME, FullState
from workers.train.pack import Pack
from workers.train.seat import Seat, needed_bytes

LENGTHS = (9, 4, 12)
ADAM = AdamParams(learning_rate=1e-2, weight_decay=0.1, grad_clip_norm=1.0)


def make_engine(module: PreTrainedModel, free_bytes: int = 10**9, **options: Any) -> TrainEngine:
    base = BaseModel(module, "tiny")
    return TrainEngine(base, name="tiny", seat=Seat(base, lambda: free_bytes), **options)


@pytest.fixture
def engine(make_module: Callable[[str], PreTrainedModel]) -> TrainEngine:
    engine = make_engine(make_module("llama"))
    engine.create("whole", None)
    return engine


def as_datum(tokens: torch.Tensor, inputs: dict[str, torch.Tensor]) -> Datum:
    return Datum(tokens=as_array(tokens), inputs={name: as_array(each) for name, each in inputs.items()})


def as_array(values: torch.Tensor) -> Array:
    dtype = {torch.float32: DType.FLOAT32, torch.int64: DType.INT64}[values.dtype]
    return Array(dtype=dtype, shape=tuple(values.shape), data=values.contiguous().numpy().tobytes())


def full(engine: TrainEngine) -> FullRun:
    run = engine._full("whole")
    assert run is not None
    return run


def good(result: BatchResult | CallerError) -> BatchResult:
    assert isinstance(result, BatchResult), result
    return result


def array(values: Array) -> torch.Tensor:
    dtype = {DType.FLOAT32: torch.float32, DType.INT64: torch.int64, DType.INT32: torch.int32}[values.dtype]
    return torch.frombuffer(bytearray(values.data), dtype=dtype).view(values.shape)


def plain_loss(module: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Cross entropy and importance sampling in one breath."""
    total = torch.zeros(())
    for datum in batch.data:
        given = {name: array(each) for name, each in datum.inputs.items()}
        logits = module(input_ids=array(datum.tokens).long()[None]).logits[0]
        lp = logits.log_softmax(1).gather(1, given["target_tokens"][:, None])[:, 0]
        if batch.loss is Loss.CROSS_ENTROPY:
            total = total - (lp * given["weights"]).sum()
        else:
            total = total - ((lp - given["logprobs"]).exp() * given["advantages"]).sum()
    return total


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


@pytest.mark.parametrize("loss", [Loss.CROSS_ENTROPY, Loss.IMPORTANCE_SAMPLING])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("pack_tokens", [16_384, 13], ids=["one pass", "some passes"])
def test_gradients_of_every_parameter_equal_pytorchs(
    make: Any,
    make_module: Callable[[str], PreTrainedModel],
    family: str,
    tied: bool,
    loss: Loss,
    pack_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(logprobs.CHUNK_ELEMENTS, "cpu", 97 * 5)  # the head sees the tokens in several chunks
    ours, theirs = (_with_tying(make_module(family), tied) for _ in range(2))
    engine = make_engine(ours, pack_tokens=pack_tokens)
    engine.create("whole", None)
    batch = make.batch("whole", loss, LENGTHS)
    result = good(engine.forward_backward([batch])[0])
    total = plain_loss(theirs.requires_grad_(True), batch)
    total.backward()
    assert result.metrics["loss:sum"] == pytest.approx(float(total.detach()), rel=1e-4)
    flat = full(engine).grad
    assert flat is not None
    found, wanted = full(engine).named(flat), dict(theirs.named_parameters())
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        assert each.grad is not None
        close(found[name], each.grad, 2e-5)


def _with_tying(module: PreTrainedModel, tied: bool) -> PreTrainedModel:
    head, table = module.get_output_embeddings(), module.get_input_embeddings()
    head.weight = table.weight if tied else torch.nn.Parameter(table.weight.detach().clone())
    module.config.tie_word_embeddings = tied
    return module


def test_computing_again_in_backward_changes_nothing(
    make: Any, make_module: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)
    grads = []
    for recompute in (True, False):
        engine = make_engine(make_module("llama"))
        engine.create("whole", None)
        with monkeypatch.context() as patched:
            if recompute:
                patched.setattr(packing, "_must_recompute", lambda *_: True)
            good(engine.forward_backward([batch])[0])
        assert engine.memory.counts.recomputed == recompute
        grads.append(full(engine).grad)
    assert torch.equal(*grads)


def test_rows_that_begin_alike_give_the_same_gradients(
    make: Any, make_module: Callable[[str], PreTrainedModel]
) -> None:
    start = make.ints(12)
    data = [as_datum(torch.cat([start, make.ints(4)]), make.inputs(Loss.CROSS_ENTROPY, 16)) for _ in range(4)]
    batch = Batch(run_id="whole", data=data, loss=Loss.CROSS_ENTROPY)
    grads = []
    for folds in (True, False):
        engine = make_engine(make_module("llama"))
        engine.create("whole", None)
        full(engine).model.folds = folds
        good(engine.forward_backward([batch])[0])
        grads.append(full(engine).grad)
    close(grads[0], grads[1])


@pytest.mark.parametrize("whole", [2**24, 1], ids=["at once", "in pieces"])
def test_steps_equal_a_plain_loop_with_adamw(
    make: Any,
    make_module: Callable[[str], PreTrainedModel],
    family: str,
    whole: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(adam.WHOLE, "cpu", whole)
    monkeypatch.setitem(adam.PIECE, "cpu", 1000)
    engine, theirs = make_engine(make_module(family)), make_module(family).requires_grad_(True)
    engine.create("whole", None)
    params = AdamParams(learning_rate=1e-3, eps=1e-8, weight_decay=0.1, grad_clip_norm=1.0)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for _ in range(3):
        batches = [make.batch("whole", loss, LENGTHS) for loss in (Loss.CROSS_ENTROPY, Loss.IMPORTANCE_SAMPLING)]
        results = engine.forward_backward(batches)
        totals = [plain_loss(theirs, batch) for batch in batches]
        sum(totals, torch.zeros(())).backward()
        for result, total in zip(results, totals, strict=True):
            assert good(result).metrics["loss:sum"] == pytest.approx(float(total.detach()), rel=1e-4)
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        before = full(engine).weights.clone()
        metrics = engine.optim_step("whole", params)
        optimizer.step()
        optimizer.zero_grad()
        assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
        assert metrics["update_norm"] == pytest.approx(float((before - full(engine).weights).norm()), rel=1e-3)
    for name, each in full(engine).named(full(engine).weights).items():
        torch.testing.assert_close(each, theirs.get_parameter(name).detach(), rtol=1e-4, atol=2e-6)


def test_a_run_with_an_adapter_beside_it_is_as_if_alone(
    make: Any, make_module: Callable[[str], PreTrainedModel]
) -> None:
    alone, beside = make_engine(make_module("llama")), make_engine(make_module("llama"))
    before = {name: each.clone() for name, each in beside.base.module.named_parameters()}
    beside.create("whole", None)
    for engine in (alone, beside):
        engine.create("small", LoraSpec(rank=4, seed=1))
    for _ in range(2):
        mine, theirs = make.batch("small", Loss.PPO, LENGTHS), make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)
        together = beside.forward_backward([theirs, mine])
        assert good(together[1]) == good(alone.forward_backward([mine])[0])
        for engine in (alone, beside):
            engine.optim_step("small", ADAM)
        beside.optim_step("whole", ADAM)
    assert torch.equal(alone.run("small").weights, beside.run("small").weights)
    for name, each in beside.base.module.named_parameters():
        assert torch.equal(each, before[name]) and not each.requires_grad, name


def test_forward_only_leaves_no_gradient(engine: TrainEngine, make: Any) -> None:
    batch = make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS, forward_only=True)
    good(engine.forward_backward([batch])[0])
    assert full(engine).grad is None and full(engine).gathering is None


def test_a_gradient_that_is_not_finite_leaves_what_was_gathered(engine: TrainEngine, make: Any) -> None:
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    before = full(engine).grad
    assert before is not None
    before = before.clone()
    inputs = make.inputs(Loss.IMPORTANCE_SAMPLING, 5) | {"logprobs": torch.full((5,), -1e9)}
    datum = as_datum(make.ints(5), inputs)
    bad = Batch(run_id="whole", data=[datum], loss=Loss.IMPORTANCE_SAMPLING)
    assert isinstance(engine.forward_backward([bad])[0], GradientNotFinite)
    assert torch.equal(full(engine).grad, before)


@pytest.mark.parametrize("calls", [1, 10, 18])
def test_no_part_of_a_gradient_stays_when_memory_ends_in_a_backward_pass(
    make: Any, make_module: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Between a weight's gradient and the flat one, too."""
    short, plenty = (make_engine(make_module("llama")) for _ in range(2))
    batch = make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)
    for engine in (short, plenty):
        engine.create("whole", None)
    good(plenty.forward_backward([batch])[0])
    left = calls

    def breaks(_: torch.Tensor) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise torch.OutOfMemoryError("CUDA out of memory")

    for name, each in parameters(full(short).model).items():
        full(short)._hooks[list(parameters(full(short).model)).index(name)].remove()
        each.register_post_accumulate_grad_hook(breaks)
        full(short)._hooked(name, each)
    good(short.forward_backward([batch])[0])
    assert short.memory.counts.exhausted == 1 and left < 0
    found, wanted = full(short).grad, full(plenty).grad
    assert found is not None and wanted is not None
    close(found, wanted)
    assert full(short).gathering is None


def test_a_datum_that_memory_never_holds_leaves_nothing_behind(
    make: Any, make_module: Callable[[str], PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = make_engine(make_module("llama"), memory_bytes=100_000)
    tight.create("whole", None)
    batch = make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)
    (refused,) = tight.forward_backward([batch])
    assert isinstance(refused, DatumTooLarge), "the gradient of the batch alone takes more"
    engine = make_engine(make_module("llama"))
    engine.create("whole", None)
    good(engine.forward_backward([batch])[0])
    before = full(engine).grad
    assert before is not None
    before = before.clone()
    monkeypatch.setattr(Pack, "run", lambda *_: False)
    (failed,) = engine.forward_backward([batch])
    assert isinstance(failed, MemoryRanOut)
    assert full(engine).gathering is None and torch.equal(full(engine).grad, before)


def test_steps_of_both_kinds_are_asked_for_at_once(engine: TrainEngine, make: Any) -> None:
    engine.create("small", LoraSpec(rank=4, seed=1))
    engine.forward_backward([make.batch(name, Loss.CROSS_ENTROPY, LENGTHS) for name in ("whole", "small")])
    asked = [("small", ADAM), ("whole", AdamParams(learning_rate=1e300)), ("gone", ADAM)]
    small, whole, gone = engine.optim_steps(asked)
    assert isinstance(small, dict) and small["applied"] == 1.0
    assert isinstance(whole, UpdateNotFinite) and isinstance(gone, RunNotFound)
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    (whole,) = engine.optim_steps([("whole", ADAM)])
    assert isinstance(whole, dict) and whole["step"] == 1.0


@pytest.mark.parametrize("whole", [2**24, 1], ids=["at once", "in pieces"])
def test_an_update_that_is_not_finite_changes_nothing(
    engine: TrainEngine, make: Any, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(adam.WHOLE, "cpu", whole)
    monkeypatch.setitem(adam.PIECE, "cpu", 1000)
    run = full(engine)
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    engine.optim_step("whole", ADAM)
    before = run.weights.clone(), run.m.clone(), run.v.clone()
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    with pytest.raises(UpdateNotFinite):
        engine.optim_step("whole", AdamParams(learning_rate=1e39))
    assert all(torch.equal(*pair) for pair in zip(before, (run.weights, run.m, run.v), strict=True))
    assert run.step == 1


# ------------------------------------------------------------------------------------------------ files
def test_transformers_loads_a_checkpoint_and_a_policy(
    make: Any, make_module: Callable[[str], PreTrainedModel], family: str, tmp_path: Path
) -> None:
    engine = make_engine(make_module(family))
    engine.create("whole", None)
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    engine.optim_step("whole", ADAM)
    ids = make.ints(1, 7)
    wanted = full(engine).model.module(input_ids=ids).logits.detach()
    for kind, files in {"weights": engine.checkpoint("whole"), "policy": engine.policy("whole")}.items():
        folder = tmp_path / kind
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        assert type(loaded) is type(make_module(family))
        torch.testing.assert_close(loaded.eval()(input_ids=ids).logits, wanted, rtol=1e-5, atol=1e-5)
    assert "optimizer.safetensors" not in engine.policy("whole")
    assert engine.adapter("whole") is None


def test_a_run_goes_on_exactly_from_its_snapshot(engine: TrainEngine, make: Any) -> None:
    def go_on(engine: TrainEngine, batches: list[Batch]) -> torch.Tensor:
        for batch in batches:
            good(engine.forward_backward([batch])[0])
            engine.optim_step("whole", ADAM)
        return full(engine).weights.clone()

    go_on(engine, [make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    files = {name: bytes(data) for name, data in engine.snapshot("whole").items()}
    assert engine.seat is not None
    rest = [make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS) for _ in range(2)]
    wanted = go_on(engine, rest)
    engine.seat.restore("whole", files)  # in place
    assert torch.equal(go_on(engine, rest), wanted)
    engine.drop("whole")
    assert not engine.has("whole")
    engine.seat.restore("whole", files)  # elsewhere
    assert torch.equal(go_on(engine, rest), wanted)


def test_a_checkpoint_goes_on_with_its_optimizer_or_a_fresh_one(engine: TrainEngine, make: Any) -> None:
    run = full(engine)
    for _ in range(2):
        good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
        engine.optim_step("whole", ADAM)
    wanted = [each.clone() for each in (run.weights, run.m, run.v)]
    files = engine.checkpoint("whole")
    good(engine.forward_backward([make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)])[0])
    engine.optim_step("whole", ADAM)
    engine.load("whole", files, with_optimizer=True)
    assert all(torch.equal(*pair) for pair in zip(wanted, (run.weights, run.m, run.v), strict=True))
    assert run.step == 2 and run.grad is None
    engine.load("whole", files, with_optimizer=False)
    assert torch.equal(run.weights, wanted[0])
    assert run.step == 0 and run.grad is None and not run.m.any() and not run.v.any()


@pytest.mark.parametrize("fault", ["missing", "extra", "shape", "no optimizer"])
def test_files_that_do_not_fit_are_refused_and_change_nothing(
    engine: TrainEngine, make_module: Callable[[str], PreTrainedModel], fault: str
) -> None:
    files = engine.checkpoint("whole")
    tensors = load(files["model.safetensors"])
    match fault:
        case "missing":
            del tensors["lm_head.weight"]
        case "extra":
            tensors["more.weight"] = torch.zeros(1)
        case "shape":
            tensors["lm_head.weight"] = torch.zeros(2, 2)
        case _:
            del files["optimizer.safetensors"]
    files["model.safetensors"] = save({name: each + 1 for name, each in tensors.items()})
    before = full(engine).weights.clone()
    with pytest.raises(WeightsUnsupported):
        engine.load("whole", files, with_optimizer=True)
    assert torch.equal(full(engine).weights, before)
    engine.drop("whole")
    with pytest.raises(WeightsUnsupported):
        engine.load("other", files, with_optimizer=True)
    assert not engine.has("other")
    engine.create("third", None)  # the seat is free


# ------------------------------------------------------------------------------------------------ the seat
def test_a_worker_without_a_seat_says_so(make_module: Callable[[str], PreTrainedModel]) -> None:
    engine = TrainEngine(BaseModel(make_module("llama"), "tiny"))
    with pytest.raises(FullRunsOff, match=r"lora_config.*OPENRL_TRAIN__FULL_RUNS=true"):
        engine.create("whole", None)
    assert not engine.has("whole")


def test_a_worker_holds_one_full_run(engine: TrainEngine) -> None:
    with pytest.raises(FullRunTaken):
        engine.create("second", None)
    engine.create("whole", None)  # the same again replaces itself
    engine.create("small", LoraSpec(rank=2))
    engine.drop("whole")
    engine.create("second", None)
    assert engine.is_full("second") and not engine.is_full("small")


def test_memory_decides(make_module: Callable[[str], PreTrainedModel]) -> None:
    base = BaseModel(make_module("llama"), "tiny")
    weights = sum(each.numel() for each in base.module.parameters())
    assert needed_bytes(base) == 20 * weights
    rounded = BaseModel(make_module("llama").to(torch.bfloat16), "tiny")
    assert needed_bytes(rounded) == 22 * weights
    engine = make_engine(make_module("llama"), free_bytes=20 * weights - 1)
    with pytest.raises(FullRunWontFit, match=r"takes 0\.0 GB here"):
        engine.create("whole", None)


def test_files_say_the_dtype_they_are_in(make_module: Callable[[str], PreTrainedModel]) -> None:
    engine = make_engine(make_module("llama").to(torch.bfloat16))
    engine.create("whole", None)
    for files, dtype in ((engine.checkpoint("whole"), "float32"), (engine.policy("whole"), "bfloat16")):
        assert json.loads(files["config.json"])["dtype"] == dtype
        assert {str(each.dtype) for each in load(files["model.safetensors"]).values()} == {f"torch.{dtype}"}


def test_a_bfloat16_model_trains_float32_weights(make: Any, make_module: Callable[[str], PreTrainedModel]) -> None:
    engine = make_engine(make_module("llama").to(torch.bfloat16))
    engine.create("whole", None)
    run = full(engine)
    batch = make.batch("whole", Loss.CROSS_ENTROPY, LENGTHS)
    assert run.weights.dtype is torch.float32 and run.model.dtype is torch.bfloat16
    for _ in range(3):  # far below what bfloat16 can tell apart
        good(engine.forward_backward([batch])[0])
        engine.optim_step("whole", AdamParams(learning_rate=1e-6))
    moved = run.weights - torch.cat([each.float().flatten() for each in engine.base.module.parameters()])
    assert float(moved.abs().max()) == pytest.approx(3e-6, rel=0.1)
    for name, each in run.model.module.named_parameters():
        assert torch.equal(each.detach(), run.named(run.weights)[name].to(torch.bfloat16))


def test_a_snapshot_of_another_model_is_refused_and_changes_nothing(engine: TrainEngine) -> None:
    assert engine.seat is not None
    files = {name: bytes(data) for name, data in engine.snapshot("whole").items()}
    longer = FullState(*(torch.ones(len(full(engine).weights) + 1) for _ in range(3)), step=1, grad=None)
    before = full(engine).weights.clone()
    for wrong, why in ((full_snapshot.write(longer), "another base model"), ({NAME: b"none"}, "unreadable")):
        with pytest.raises(WeightsUnsupported, match=why):
            engine.seat.restore("whole", {name: bytes(data) for name, data in wrong.items()})
    assert torch.equal(full(engine).weights, before) and full_snapshot.holds(files)
