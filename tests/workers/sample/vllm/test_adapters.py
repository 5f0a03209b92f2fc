import json

import pytest
import torch
from fakes import MARKS, FakeVllm, ask
from safetensors.torch import save

from openrl.domain.errors import AdapterUnsupported, WeightsNotArrived

pytestmark = MARKS


def files(**settings):
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]} | settings
    name = "base_model.model.layers.0.q_proj.lora"
    tensors = {f"{name}_A.weight": torch.ones(1, 8), f"{name}_B.weight": torch.ones(8, 1)}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}


def folders(tmp_path):
    return len(list((tmp_path / "adapters").iterdir()))


def test_the_folder_is_bounded_and_what_left_comes_back(make, tmp_path):
    fetched = []
    engine = make(FakeVllm(), fetch=lambda key: fetched.append(key) or files(), limit=2)
    for key in ("a", "b", "a", "c", "a", "b"):
        engine.submit(ask(policy=key)).result(10)
    assert fetched == ["a", "b", "c", "b"], "the one used longest ago leaves"
    assert folders(tmp_path) == 2
    engine.close()
    assert not (tmp_path / "adapters").exists()


def test_a_folder_stays_while_a_request_needs_it(make, tmp_path):
    fake = FakeVllm(hangs=True)
    engine = make(fake, fetch=lambda key: files(), limit=1)
    futures = [engine.submit(ask(policy=key)) for key in "abc"]
    while len(fake.asked) < 3:
        pass
    assert folders(tmp_path) == 3
    fake.hangs = False
    for future in futures:
        future.result(10)
    assert folders(tmp_path) == 1


def test_an_adapter_is_tried_alone_before_a_request_brings_it_into_a_step(make):
    fake = FakeVllm()
    engine = make(fake, fetch=lambda key: files())
    engine.submit(ask(policy="a")).result(10)
    engine.submit(ask(policy="a")).result(10)
    assert fake.added == ["a"]
    fake.refuses = ValueError("rank 99 is greater")
    with pytest.raises(AdapterUnsupported, match=r"adapter b: vLLM cannot take it: rank 99"):
        engine.submit(ask(policy="b")).result(10)
    assert len(fake.asked) == 2


def test_weights_that_have_not_arrived_are_asked_for_again(make):
    there = {}
    engine = make(FakeVllm(), fetch=lambda key: there[key])
    assert isinstance(engine.submit(ask(policy="a")).exception(10), WeightsNotArrived)
    there["a"] = files()
    assert engine.submit(ask(policy="a")).exception(10) is None


def test_settings_that_vllm_would_pass_over_are_refused(make):
    engine = make(FakeVllm(), fetch=lambda key: files(alpha_pattern={"q_proj": 2}))
    with pytest.raises(AdapterUnsupported, match="alpha_pattern"):
        engine.submit(ask(policy="a")).result(10)


def test_weights_of_a_whole_model_are_refused_with_what_to_do(make):
    with pytest.raises(AdapterUnsupported, match="torch sample worker"):
        make(FakeVllm()).submit(ask(policy="policies/full-1")).result(10)
