import pytest
import torch
from transformers import FalconH1Config, FalconH1ForCausalLM

from openrl.domain.errors import ModelUnsupported
from workers.model.base import BaseModel
from workers.sample.torch.masks import MaskPlan
from workers.sample.torch.trial import check_decoding


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gemma3_text"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_family_that_can_be_served_passes(lab, family, dtype):
    base = lab.fresh(family, getattr(torch, dtype))
    window = getattr(base.module.config, "sliding_window", None)
    check_decoding(base, family)
    assert getattr(base.module.config, "sliding_window", None) == window


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_a_window_longer_than_the_trial_is_tried_all_the_same(lab, family, monkeypatch):
    base = lab.fresh(family)
    base.module.config.sliding_window = 128
    check_decoding(base, family)
    monkeypatch.setattr(MaskPlan, "__call__", whole_masks(MaskPlan.__call__))
    with pytest.raises(ModelUnsupported, match="decoded log-probabilities differ from a whole forward pass"):
        check_decoding(base, family)


def whole_masks(plan):
    def masks(self, positions, length):
        self._window = 1 << 20
        return plan(self, positions, length)

    return masks


def test_a_model_with_a_recurrent_part_says_so_at_start():
    config = FalconH1Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_n_groups=1,
    )
    base = BaseModel(FalconH1ForCausalLM(config).eval(), "falcon")
    with pytest.raises(ModelUnsupported, match="its layers of type 'hybrid' cannot be sampled"):
        check_decoding(base, "falcon")


def test_a_cache_that_a_model_uses_in_its_own_way_is_found_out(lab, monkeypatch):
    base = lab.fresh("llama")
    attention = base.module.model.layers[1].self_attn
    plain = attention.forward

    def sharing(*args, **kw):
        cache = kw.get("past_key_values") or kw.get("cache")
        return plain(*args, **kw) if cache is None else cache.shared_layers[0]

    monkeypatch.setattr(attention, "forward", sharing)
    with pytest.raises(ModelUnsupported, match=r"fails .AttributeError: .* object has no attribute 'shared_layers'"):
        check_decoding(base, "sharing")
