"""The engine against plain PyTorch with PEFT, and packs against the same batches alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import CallerError, FieldInvalid, GradientNotFinite, RunNotFound, UpdateNotFinite
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.tensor import DType
from openrl.domain.tensor import Tensor as Array
from workers.model.base import BaseModel
from workers.train.engine import Batch, TrainEngine

pytestmark = [  # PEFT's own affairs
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings:UserWarning"),
]
SPECS = {
    "all": LoraSpec(rank=4, seed=1),
    "small": LoraSpec(rank=2, seed=2, train_unembed=False),
    "head": LoraSpec(rank=3, seed=3, train_attn=False, train_mlp=False),
    "twin": LoraSpec(rank=4, seed=4),
}
LENGTHS = (9, 4, 12)
CONFIGS: dict[Loss, dict[str, float]] = {Loss.PPO: {"clip_high_threshold": 1.1}, Loss.DRO: {"beta": 0.2}}


def start(engine: TrainEngine, *names: str) -> None:
    """Fresh runs whose B is not zero, so that gradients reach A too."""
    for name in names:
        engine.create(name, SPECS[name])
        run = engine.run(name)
        generator = torch.Generator().manual_seed(SPECS[name].rank)
        run.weights += torch.randn(run.shape.size, generator=generator) * 0.05


def good(result: BatchResult | CallerError) -> BatchResult:
    assert isinstance(result, BatchResult), result
    return result


def array(values: Array) -> Tensor:
    dtype = {DType.FLOAT32: torch.float32, DType.INT64: torch.int64, DType.INT32: torch.int32}[values.dtype]
    return torch.frombuffer(bytearray(values.data), dtype=dtype).view(values.shape)


def grad(engine: TrainEngine, run: str) -> Tensor:
    found = engine.run(run).grad
    assert found is not None
    return found


def close(found: Tensor, wanted: Tensor, tolerance: float = 3e-5) -> None:
    """Up to the rounding of float32 sums in another order, which CPUs differ in: 6e-6 of the largest element is seen on
    a Zen 5, 1.4e-5 on a Xeon."""
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


def plain_loss(lp: Tensor, datum: Datum, loss: Loss, config: dict[str, float]) -> Tensor:
    """The definitions once more, in one breath."""
    given = {name: array(each) for name, each in datum.inputs.items()}
    if loss is Loss.CROSS_ENTROPY:
        return -(lp * given["weights"]).sum()
    a, gap = given["advantages"], lp - given["logprobs"]
    r = gap.exp()
    low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
    match loss:
        case Loss.IMPORTANCE_SAMPLING:
            return -(r * a).sum()
        case Loss.PPO:
            return -torch.minimum(r * a, r.clamp(low, high) * a).sum()
        case Loss.CISPO:
            return -(r.detach().clamp(0.0, 4.0) * lp * a).sum()
        case _:
            return -(lp * a - 0.5 * config["beta"] * gap**2).sum()


@pytest.mark.parametrize("loss", Loss)
def test_losses_logprobs_and_gradients_equal_pytorch_with_peft(
    make: Any, make_module: Callable[[str], PreTrainedModel], family: str, loss: Loss, tmp_path: Path
) -> None:
    engine = TrainEngine(BaseModel(make_module(family), "tiny"))
    start(engine, "all")
    config = CONFIGS.get(loss, {})
    batch = make.batch("all", loss, LENGTHS, loss_config=config)
    result = good(engine.forward_backward([batch])[0])

    for name, data in engine.policy("all").items():
        (tmp_path / name).write_bytes(data)
    theirs = PeftModel.from_pretrained(make_module(family), str(tmp_path), is_trainable=True).eval()
    total = torch.zeros(())
    for datum, found in zip(batch.data, result.logprobs, strict=True):
        logits = theirs(input_ids=array(datum.tokens).long()[None]).logits[0]
        lp = logits.log_softmax(1).gather(1, array(datum.inputs["target_tokens"])[:, None])[:, 0]
        torch.testing.assert_close(array(found), lp.detach(), rtol=1e-4, atol=1e-5)
        total = total + plain_loss(lp, datum, loss, config)
    total.backward()
    assert result.metrics["loss:sum"] == pytest.approx(float(total.detach()), rel=1e-4, abs=1e-4)
    assert result.metrics["tokens:sum"] == sum(LENGTHS)
    shape = engine.run("all").shape
    named = {name.replace(".default", ""): each for name, each in theirs.named_parameters()}
    for target in shape.targets:
        for part, matrix in zip(shape.parts(target.name), "AB", strict=True):
            wanted = named[f"base_model.model.{target.name}.lora_{matrix}.weight"].grad
            assert wanted is not None
            close(grad(engine, "all")[part].view(wanted.shape), wanted, 1e-4)


def mixed_batches(make: Any) -> list[Batch]:
    """Four runs of different ranks and targets with all losses; one run twice; lengths that need padding."""
    return [
        make.batch("all", Loss.CROSS_ENTROPY, (9, 4)),
        make.batch("small", Loss.PPO, (12, 3, 7), loss_config=CONFIGS[Loss.PPO]),
        make.batch("head", Loss.DRO, (5,), loss_config=CONFIGS[Loss.DRO]),
        make.batch("twin", Loss.IMPORTANCE_SAMPLING, (6, 6, 2)),
        make.batch("all", Loss.CISPO, (8,)),
    ]


def test_the_padding_of_the_last_call_is_told(engine: TrainEngine, make: Any) -> None:
    assert engine.padding_share == 0.0
    start(engine, "all", "small")
    engine.forward_backward([make.batch("all", Loss.PPO, (9, 3)), make.batch("small", Loss.PPO, (8,))])
    assert engine.padding_share == pytest.approx(1 - 20 / 27)
    engine.forward_backward([make.batch("all", Loss.PPO, (5, 5))])
    assert engine.padding_share == 0.0


@pytest.mark.parametrize("pack_tokens", [16_384, 30, 1], ids=["one pass", "some passes", "a pass a row"])
def test_packed_equals_alone(
    make: Any, make_module: Callable[[str], PreTrainedModel], family: str, pack_tokens: int
) -> None:
    batches = mixed_batches(make)
    together = TrainEngine(BaseModel(make_module(family), "tiny"), pack_tokens=pack_tokens)
    alone = TrainEngine(BaseModel(make_module(family), "tiny"))
    start(together, *SPECS)
    start(alone, *SPECS)
    packed = together.forward_backward(batches)
    single = [alone.forward_backward([batch])[0] for batch in batches]
    for found, wanted in zip(map(good, packed), map(good, single), strict=True):
        assert found.metrics == pytest.approx(wanted.metrics, rel=1e-5, abs=1e-5)
        for one, other in zip(found.logprobs, wanted.logprobs, strict=True):
            torch.testing.assert_close(array(one), array(other), rtol=1e-5, atol=1e-5)
    for run in SPECS:
        close(grad(together, run), grad(alone, run))


def test_two_calls_add_up_to_one(make: Any, engine: TrainEngine) -> None:
    start(engine, "all", "twin")
    batch = make.batch("all", Loss.PPO, LENGTHS)
    engine.forward_backward([batch])
    whole = grad(engine, "all").clone()
    engine.run("all").grad = None
    for part in (batch.data[:1], batch.data[1:]):
        good(engine.forward_backward([replace(batch, data=part)])[0])
    close(grad(engine, "all"), whole)


def test_several_targets_per_token_weigh_in_and_come_back_in_shape(make: Any, engine: TrainEngine) -> None:
    start(engine, "all")
    wide, flat = make.datum(Loss.CROSS_ENTROPY, 6, 3), make.datum(Loss.CROSS_ENTROPY, 9)
    batch = Batch(run_id="all", data=[wide, flat], loss=Loss.CROSS_ENTROPY)
    result = good(engine.forward_backward([batch])[0])
    assert [each.shape for each in result.logprobs] == [(6, 3), (9,)]
    columns = [
        Datum(tokens=wide.tokens, inputs={name: one_column(each, k) for name, each in wide.inputs.items()})
        for k in range(3)
    ]
    gradient = grad(engine, "all").clone()
    engine.run("all").grad = None
    apart = good(engine.forward_backward([replace(batch, data=[*columns, flat])])[0])
    assert result.metrics["loss:sum"] == pytest.approx(apart.metrics["loss:sum"], rel=1e-5)
    close(grad(engine, "all"), gradient)


def one_column(values: Array, k: int) -> Array:
    column = array(values)[:, k].contiguous()
    return Array(dtype=values.dtype, shape=tuple(column.shape), data=column.numpy().tobytes())


def test_forward_only_gives_the_same_numbers_and_no_gradient(make: Any, engine: TrainEngine) -> None:
    start(engine, "all", "small")
    batch = make.batch("all", Loss.PPO, LENGTHS)
    forward = engine.forward_backward([replace(batch, forward_only=True), replace(batch, run_id="small")])
    assert engine.run("all").grad is None and engine.run("small").grad is not None
    both = good(engine.forward_backward([batch])[0])
    assert good(forward[0]).metrics == pytest.approx(both.metrics, rel=1e-5)
    for one, other in zip(good(forward[0]).logprobs, both.logprobs, strict=True):
        torch.testing.assert_close(array(one), array(other))


@pytest.mark.parametrize("place", [0, 2])
def test_not_a_number_fails_its_own_batch_only(make: Any, engine: TrainEngine, place: int) -> None:
    start(engine, *SPECS)
    batches = mixed_batches(make)
    bad = batches[3]
    spoiled = array(bad.data[place].inputs["advantages"])
    spoiled[1] = torch.nan
    inputs = {
        **bad.data[place].inputs,
        "advantages": replace(
            bad.data[0].inputs["advantages"], shape=tuple(spoiled.shape), data=spoiled.numpy().tobytes()
        ),
    }
    batches[3] = replace(
        bad, data=[replace(each, inputs=inputs) if n == place else each for n, each in enumerate(bad.data)]
    )
    before = {run: engine.run(run).weights.clone() for run in SPECS}
    results = engine.forward_backward(batches)
    assert isinstance(results[3], GradientNotFinite)
    assert engine.run("twin").grad is None
    found = {run: grad(engine, run).clone() for run in ("all", "small", "head")}
    for run in SPECS:
        assert torch.equal(engine.run(run).weights, before[run])
        engine.run(run).grad = None
    engine.forward_backward([batch for batch in batches if batch.run_id != "twin"])
    for run, gradient in found.items():
        close(gradient, grad(engine, run))


def test_a_failed_batch_leaves_its_runs_other_gradient(make: Any, engine: TrainEngine) -> None:
    start(engine, "all")
    fine = make.batch("all", Loss.CROSS_ENTROPY, (5, 5))
    bad = make.batch("all", Loss.IMPORTANCE_SAMPLING, (5,))
    low = Array(dtype=DType.FLOAT32, shape=(5,), data=torch.full((5,), -1e4).numpy().tobytes())
    bad = replace(bad, data=[replace(bad.data[0], inputs=bad.data[0].inputs | {"logprobs": low})])
    results = engine.forward_backward([fine, bad])
    assert isinstance(results[1], GradientNotFinite)
    both = grad(engine, "all").clone()
    engine.run("all").grad = None
    engine.forward_backward([fine])
    close(both, grad(engine, "all"))


def test_masked_tokens_and_bounds_of_a_datum_count(make: Any, engine: TrainEngine) -> None:
    start(engine, "all")
    batch = make.batch("all", Loss.PPO, (6,))
    ones = torch.ones(6)
    ones[3:] = 0
    mask = Array(dtype=DType.FLOAT32, shape=(6,), data=ones.numpy().tobytes())
    bound = Array(dtype=DType.FLOAT32, shape=(1,), data=torch.tensor([0.01]).numpy().tobytes())
    inputs = batch.data[0].inputs | {"mask": mask, "clip_high_threshold": bound, "clip_low_threshold": bound}
    result = good(engine.forward_backward([replace(batch, data=[replace(batch.data[0], inputs=inputs)])])[0])
    lp = array(result.logprobs[0])
    a, r = array(inputs["advantages"]), (lp - array(inputs["logprobs"])).exp()
    assert result.metrics["loss:sum"] == pytest.approx(float(-(torch.minimum(r * a, 0.01 * a) * ones).sum()), rel=1e-4)
    assert result.metrics["active_tokens:sum"] == 3 and result.metrics["clip_fraction:mean"] == 1.0
    assert all(name.count(":") == 1 for name in result.metrics)


def wrong_batches(make: Any) -> dict[str, Batch]:
    batch = make.batch("all", Loss.PPO, (6,))
    datum = batch.data[0]
    high = Array(dtype=DType.INT64, shape=(6,), data=torch.full((6,), 97).numpy().tobytes())
    return {
        "data": replace(batch, data=[]),
        "data[0].model_input": replace(batch, data=[make.datum(Loss.PPO, 65)]),
        "data[0].loss_fn_inputs.target_tokens": replace(
            batch, data=[replace(datum, inputs=datum.inputs | {"target_tokens": high})]
        ),
        "data[0].loss_fn_inputs.weights": replace(batch, loss=Loss.CROSS_ENTROPY),
        "loss_fn_config.beta": replace(batch, loss_config={"beta": 1.0}),
    }


def test_wrong_batches_are_named_and_the_others_still_run(make: Any, engine: TrainEngine) -> None:
    start(engine, "all", "small")
    wrong = wrong_batches(make)
    results = engine.forward_backward(
        [*wrong.values(), make.batch("small", Loss.PPO, (4,)), make.batch("nobody", Loss.PPO, (4,))]
    )
    for field, result in zip(wrong, results, strict=False):
        assert isinstance(result, FieldInvalid) and result.field == field
    good(results[-2])
    assert isinstance(results[-1], RunNotFound)
    assert engine.run("all").grad is None and engine.run("small").grad is not None


def step(engine: TrainEngine, batch: Batch) -> dict[str, float]:
    good(engine.forward_backward([batch])[0])
    return engine.optim_step(batch.run_id, AdamParams(learning_rate=1e-2, grad_clip_norm=1.0))


def test_training_lowers_the_loss(make: Any, engine: TrainEngine) -> None:
    engine.create("all", SPECS["all"])
    data = make.batch("all", Loss.CROSS_ENTROPY, (8,)).data[0]
    ones = Array(dtype=DType.FLOAT32, shape=(8,), data=torch.ones(8).numpy().tobytes())
    batch = Batch(run_id="all", data=[replace(data, inputs=data.inputs | {"weights": ones})], loss=Loss.CROSS_ENTROPY)
    losses = []
    for _ in range(15):
        losses.append(good(engine.forward_backward([batch])[0]).metrics["loss:sum"])
        engine.optim_step("all", AdamParams(learning_rate=2e-2))
    assert losses[-1] < 0.4 * losses[0]


def test_a_loaded_checkpoint_goes_on_identically(make: Any, engine: TrainEngine) -> None:
    start(engine, "all")
    batches: Sequence[Batch] = [make.batch("all", Loss.CROSS_ENTROPY, LENGTHS) for _ in range(4)]
    for batch in batches[:2]:
        step(engine, batch)
    good(engine.forward_backward([batches[2]])[0])
    files = {name: bytes(data) for name, data in engine.snapshot("all").items()}
    engine.put("copy", engine.restored(files))
    engine.load("cold", engine.checkpoint("all"), with_optimizer=False)
    assert torch.equal(engine.run("copy").weights, engine.run("cold").weights)
    for run in ("all", "copy"):
        step(engine, replace(batches[3], run_id=run))
    assert torch.equal(engine.run("all").weights, engine.run("copy").weights)
    assert engine.run("copy").step == 3 and engine.run("cold").step == 0


def test_an_optimizer_that_is_not_there_is_refused(engine: TrainEngine) -> None:
    start(engine, "all")
    with pytest.raises(CallerError, match="optimizer"):
        engine.load("copy", engine.policy("all"), with_optimizer=True)
    assert not engine.has("copy")


def test_saved_files_name_no_run_and_dropped_runs_are_gone(engine: TrainEngine) -> None:
    engine.create("secret-run-name", LoraSpec(rank=2))
    files = engine.checkpoint("secret-run-name")
    assert sorted(files) == ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"]
    assert not any(b"secret" in data for data in files.values())
    engine.drop("secret-run-name")
    assert not engine.has("secret-run-name")
    with pytest.raises(RunNotFound):
        engine.policy("secret-run-name")


def test_steps_of_several_runs_are_asked_for_at_once(engine: TrainEngine, make: Any) -> None:
    start(engine, "all", "small")
    engine.forward_backward([make.batch("all", Loss.PPO, (9, 3)), make.batch("small", Loss.PPO, (8,))])
    asked = [("all", AdamParams()), ("gone", AdamParams()), ("small", AdamParams(learning_rate=1e300))]
    first, gone, small = engine.optim_steps(asked)
    assert isinstance(first, dict) and first["applied"] == 1.0
    assert isinstance(gone, RunNotFound) and isinstance(small, UpdateNotFinite)
