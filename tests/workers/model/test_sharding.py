"""A mesh of one rank: all the hooks of a sharded model, without another process."""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.sharding import idle_pass, shard
from workers.model.spans import Span, SpanMix, TrainingAdapter

CPU = torch.device("cpu")
IDS = torch.arange(12).view(2, 6)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def whole(make_module: Callable[[str], PreTrainedModel], family: str) -> BaseModel:
    return BaseModel(make_module(family), family)


@pytest.fixture
def sharded(make_module: Callable[[str], PreTrainedModel], family: str) -> BaseModel:
    base = BaseModel(make_module(family), family)
    shard(base, init_device_mesh("cpu", (1,)), CPU)
    return base


def adapter(base: BaseModel, targets: Sequence[str]) -> TrainingAdapter:
    shape = LoraShape(base.layout, 3, targets)
    weights = torch.randn(shape.size, generator=torch.Generator().manual_seed(1)) * 0.05
    return TrainingAdapter(shape, weights, train=True)


def train(base: BaseModel, targets: Sequence[str], *, recompute: bool = False) -> tuple[Tensor, Tensor]:
    """Hidden states, and the gradient of the adapter on these targets."""
    used = adapter(base, targets)
    with base.mixed(SpanMix([Span(0, len(IDS), used)])), base.recomputing(recompute):
        hidden = base.hidden(IDS)
        hidden.backward(torch.full_like(hidden, 0.1))
    assert used.grad is not None
    return hidden.detach(), used.grad


@pytest.mark.parametrize("recompute", [False, True])
def test_a_sharded_model_computes_the_same(whole: BaseModel, sharded: BaseModel, recompute: bool) -> None:
    names = [target.name for target in whole.layout.targets]
    for _ in range(2):
        for found, wanted in zip(*(train(base, names, recompute=recompute) for base in (sharded, whole)), strict=True):
            torch.testing.assert_close(found, wanted)


def test_layers_are_cut_and_the_rest_is_whole(sharded: BaseModel) -> None:
    for name, parameter in sharded.module.named_parameters():
        assert isinstance(parameter, DTensor) is (".layers." in name), name
    assert sharded.head(torch.zeros(1, 1, 32)).shape[-1] == sharded.vocab_size


@pytest.fixture
def back(sharded: BaseModel) -> list[int]:
    """Fills with the layers that a backward pass went through."""
    gone: list[int] = []
    decoder = sharded.module.get_decoder()
    for number, layer in enumerate(decoder.layers):
        layer.register_full_backward_hook(lambda *_, number=number: gone.append(number))
    return gone


def test_every_way_back_goes_through_all_layers(sharded: BaseModel, back: list[int]) -> None:
    last = sharded.layout.targets[-2].name
    assert ".layers.1." in last
    train(sharded, [last])
    assert back == [1, 0]


def test_an_idle_pass_goes_the_same_way(sharded: BaseModel, back: list[int]) -> None:
    idle_pass(sharded, train=True)
    assert back == [1, 0]
    idle_pass(sharded, train=False)
    assert back == [1, 0]
