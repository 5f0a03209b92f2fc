from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from openrl.domain.errors import BaseModelMissing, ModelUnsupported
from openrl.domain.run import LoraSpec
from workers.model.base import BaseModel, load_base
from workers.model.layout import Group, LoraShape
from workers.model.spans import Span, SpanMix, TrainingAdapter

Make = Callable[[str], PreTrainedModel]


def test_decoder_and_head_give_the_whole_models_logits(make_module: Make, family: str) -> None:
    ids = torch.randint(0, 97, (2, 11))
    with torch.no_grad():
        wanted = make_module(family)(input_ids=ids).logits
        base = BaseModel(make_module(family), "tiny")
        torch.testing.assert_close(base.head(base.hidden(ids)), wanted)


def test_targets_are_found_in_every_family(make_module: Make, family: str) -> None:
    layout = BaseModel(make_module(family), "tiny").layout
    counts = {group: sum(target.group is group for target in layout.targets) for group in Group}
    assert counts == {Group.ATTN: 8, Group.MLP: 6, Group.UNEMBED: 1}
    assert layout.targets[0].name == "model.layers.0.self_attn.q_proj"
    assert layout.targets[-1].name == "lm_head"


def test_nothing_of_the_base_is_trainable_and_its_facts_are_read(base: BaseModel) -> None:
    assert not any(parameter.requires_grad for parameter in base.module.parameters())
    assert (base.vocab_size, base.context_length, base.eos_token_ids) == (97, 64, (2, 5))
    assert base.architecture == "LlamaForCausalLM" and base.dtype is torch.float32


def test_a_model_saved_to_disk_loads(base: BaseModel, make_module: Make, tmp_path: Path) -> None:
    make_module("llama").save_pretrained(tmp_path)
    loaded = load_base(tmp_path, device=torch.device("cpu"), dtype=torch.float32)
    ids = torch.arange(6)[None]
    with torch.no_grad():
        assert torch.equal(loaded.hidden(ids), base.hidden(ids))


def test_a_missing_model_is_the_operators_to_mend(tmp_path: Path) -> None:
    with pytest.raises(BaseModelMissing, match="cannot be loaded"):
        load_base(tmp_path / "nothing", device=torch.device("cpu"), dtype=torch.float32)


def test_a_model_without_linears_where_we_look_is_refused() -> None:
    module = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2))
    with pytest.raises(ModelUnsupported, match="linear layers"):
        BaseModel(module, "gpt2")


def test_a_model_that_changes_logits_after_the_head_is_refused(
    make_module: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = make_module("gemma3")
    forward = type(module).forward

    def scaled(self: PreTrainedModel, **kw: object) -> object:
        out = forward(self, **kw)
        out.logits = out.logits * 3
        return out

    monkeypatch.setattr(type(module), "forward", scaled)
    with pytest.raises(ModelUnsupported, match="logits"):
        BaseModel(module, "odd")


def test_recomputing_layers_gives_the_same_gradients(make_module: Make, family: str) -> None:
    base = BaseModel(make_module(family), "tiny")
    calls: list[object] = []
    base.module.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    shape = LoraShape.of(base.layout, LoraSpec(rank=3))
    weights = torch.randn(shape.size, generator=torch.Generator().manual_seed(0)) * 0.1
    ids, grads = torch.arange(18).view(2, 9), []
    for recompute in (False, True):
        adapter = TrainingAdapter(shape, weights, train=True)
        with base.mixed(SpanMix([Span(0, 2, adapter)])), base.recomputing(recompute):
            base.hidden(ids).square().sum().backward()
        grads.append(adapter.grad)
    torch.testing.assert_close(grads[0], grads[1])
    assert len(calls) == 3  # once without, twice with
    assert not any(module.training for module in base.module.modules())


def test_a_twin_has_the_same_weights_and_a_mix_of_its_own(make_module: Make, family: str) -> None:
    base = BaseModel(make_module(family), "tiny")
    twin = base.twin()
    mine, its = ({id(tensor) for tensor in one.module.parameters()} for one in (base, twin))
    assert mine == its
    ids = torch.arange(18).view(2, 9)
    shape = LoraShape.of(base.layout, LoraSpec(rank=3))
    adapter = TrainingAdapter(shape, torch.randn(shape.size), train=False)
    with torch.no_grad():
        plain = base.head(base.hidden(ids))
        with base.mixed(SpanMix([Span(0, 2, adapter)])), base.recomputing(True):
            adapted = base.head(base.hidden(ids))
            torch.testing.assert_close(twin.head(twin.hidden(ids)), plain, rtol=0, atol=0)
        assert not torch.equal(plain, adapted)
    assert not any(module.training for module in twin.module.modules())
