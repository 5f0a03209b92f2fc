from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from openrl.domain.errors import AdapterUnsupported
from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel
from workers.train import snapshot_file
from workers.train.run_state import RunState


def files(run: RunState) -> dict[str, bytes]:
    return {name: bytes(data) for name, data in snapshot_file.write(run).items()}


@pytest.fixture
def run(base: BaseModel) -> RunState:
    run = RunState.fresh(base.layout, LoraSpec(rank=3, train_unembed=False, seed=5))
    run.m, run.v, run.step = torch.randn(run.shape.size), torch.randn(run.shape.size), 7
    return run


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_run_comes_back_exactly(base: BaseModel, run: RunState, with_gradient: bool) -> None:
    run.grad = torch.randn(run.shape.size) if with_gradient else None
    back = snapshot_file.read(base.layout, files(run))
    assert (back.shape, back.step, back.seed) == (run.shape, 7, 5)
    assert len(back.vectors) == len(run.vectors)
    assert all(torch.equal(one, other) for one, other in zip(back.vectors, run.vectors, strict=True))


def test_what_is_written_does_not_change_with_the_run(base: BaseModel, run: RunState) -> None:
    written, before = snapshot_file.write(run), run.weights.clone()
    run.weights.add_(1.0)
    back = snapshot_file.read(base.layout, {name: bytes(data) for name, data in written.items()})
    assert torch.equal(back.weights, before)


@pytest.mark.parametrize("broken", [{}, {snapshot_file.NAME: b"no"}])
def test_what_is_no_snapshot_is_refused(base: BaseModel, broken: dict[str, bytes]) -> None:
    with pytest.raises(AdapterUnsupported, match="unreadable"):
        snapshot_file.read(base.layout, broken)


def test_a_snapshot_of_another_base_model_is_refused(
    run: RunState, make_module: Callable[[str], PreTrainedModel]
) -> None:
    config = make_module("llama").config.to_dict() | {"hidden_size": 64}
    wider = BaseModel(LlamaForCausalLM(LlamaConfig(**config)), "wider")
    with pytest.raises(AdapterUnsupported, match="another base model"):
        snapshot_file.read(wider.layout, files(run))
