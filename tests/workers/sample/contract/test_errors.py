"""What every sample engine refuses, and that one request's error is nobody else's."""

import json
from typing import Any

import pytest
from laboratory import MAX_RANK, Laboratory

from openrl.domain.errors import AdapterUnsupported, FieldInvalid, WeightsNotArrived
from openrl.domain.policy import WHOLE

PROMPT = list(range(20, 33))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": PROMPT, "max_tokens": 250}, "sampling_params.max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [5, 97]}, "prompt"),
        ({"prompt": [5] * 300, "max_tokens": 1}, "prompt"),
        ({"prompt": PROMPT, "temperature": -1.0}, "sampling_params.temperature"),
        ({"prompt": PROMPT, "temperature": float("nan")}, "sampling_params.temperature"),
        ({"prompt": PROMPT, "top_p": 0.0}, "sampling_params.top_p"),
        ({"prompt": PROMPT, "topk_sample_logprobs": 98}, "topk_sample_logprobs"),
        ({"prompt": PROMPT, "stop_tokens": (97,)}, "sampling_params.stop"),
        ({"prompt": PROMPT, "prompt_logprobs": True, "prompt_logprobs_last_n": 13}, "prompt_logprobs_last_n"),
    ],
)
def test_what_can_never_be_served_is_refused_by_name(lab: Laboratory, fields: dict[str, Any], named: str) -> None:
    error = lab.error(lab.ask(**fields))
    assert isinstance(error, FieldInvalid)
    assert error.field == named


def test_a_missing_policy_fails_only_its_own_request_and_is_asked_for_again(lab: Laboratory) -> None:
    lost, fine = lab.engine.submit(lab.ask(PROMPT, policy="late")), lab.engine.submit(lab.ask(PROMPT))
    assert isinstance(lost.exception(60), WeightsNotArrived)
    assert len(fine.result(60).sequences) == 1
    lab.publish("late", 4)
    found = lab.sample(PROMPT, 6, policy="late", temperature=0.0)
    assert lab.tokens(found) == lab.greedy(PROMPT, 6, "late")


def broken_settings(**settings: Any) -> bytes:
    return json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "target_modules": ["q_proj"]} | settings).encode()


@pytest.mark.parametrize("name", ["no-weights", "no-adapter", "dora", "unknown-layer", "not-finite"])
def test_adapters_that_cannot_be_computed_with_are_refused_and_harm_nobody(lab: Laboratory, name: str) -> None:
    files = lab.files[lab.publish(name, 6, scale=float("inf") if name == "not-finite" else 0.1)]
    if name == "no-weights":
        del files["adapter_model.safetensors"]
    if name == "no-adapter":
        files["adapter_config.json"] = b"{}"
    if name == "dora":
        files["adapter_config.json"] = broken_settings(use_dora=True)
    if name == "unknown-layer":
        files["adapter_model.safetensors"] = files["adapter_model.safetensors"].replace(b"q_proj", b"z_proj")
    bad, fine = lab.engine.submit(lab.ask(PROMPT, policy=name)), lab.engine.submit(lab.ask(PROMPT, temperature=0.0))
    assert isinstance(bad.exception(60), AdapterUnsupported)
    assert lab.tokens(fine.result(60).sequences[0]) == lab.greedy(PROMPT, 8)


def test_weights_that_give_nonsense_fail_their_own_request(lab: Laboratory) -> None:
    lab.publish("nonsense", 1, scale=1e18)
    crowd = [lab.ask(range(3, 40 + at), 30, policy=None if at % 4 else "nonsense", temperature=0.0) for at in range(8)]
    futures = [lab.engine.submit(request) for request in crowd]
    for request, future in zip(crowd, futures, strict=True):
        if request.policy is None:
            assert lab.tokens(future.result(60).sequences[0]) == lab.greedy(list(request.prompt), 30)
        else:
            error = future.exception(60)
            assert isinstance(error, FieldInvalid | AdapterUnsupported)
            assert "not finite" in str(error)
    for size in range(1, 60, 15):  # whatever they left behind is harmless
        prompt = list(range(20, 20 + size))
        assert lab.tokens(lab.sample(prompt, 6, temperature=0.0)) == lab.greedy(prompt, 6)


def test_what_only_one_engine_serves_is_served_or_says_so(lab: Laboratory, served: set[str]) -> None:
    asked = {
        "hot": lab.ask(PROMPT, temperature=3.0, seed=1),
        "cold": lab.ask(PROMPT, temperature=0.001, seed=1),
    }
    for name, request in asked.items():
        if name in served:
            assert len(lab.run(request)[0].sequences) == 1
        else:
            assert "torch sample worker" in str(lab.error(request))


def test_an_adapter_of_too_large_a_rank_is_refused_and_harms_nobody(lab: Laboratory, served: set[str]) -> None:
    lab.publish("wide", 7, rank=MAX_RANK + 1)
    wide, fine = lab.engine.submit(lab.ask(PROMPT, policy="wide")), lab.engine.submit(lab.ask(PROMPT, temperature=0.0))
    error = wide.exception(60)
    if "any rank" in served:
        assert error is None
    else:
        assert isinstance(error, AdapterUnsupported) and "rank" in str(error)
    assert lab.tokens(fine.result(60).sequences[0]) == lab.greedy(PROMPT, 8)


def test_a_policy_of_a_full_run_is_not_sampled_from_the_base_model(lab: Laboratory) -> None:
    error = lab.error(lab.ask(PROMPT, policy=f"policies/{WHOLE}1"))
    assert isinstance(error, AdapterUnsupported | WeightsNotArrived)
