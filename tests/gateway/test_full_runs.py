"""Runs that train all weights: asked for, refused, described."""

import pytest

from openrl.client import FULL_RUN_HEADERS


def create(http, headers=None, **fields):
    request = {"session_id": http.session(), "model_seq_id": 0, "base_model": "toy"} | fields
    return http.post("create_model", json=request, headers=headers or {})


@pytest.fixture(params=["no adapter", "header"])
def full(request, http):
    asked = {"no adapter": {}, "header": {"headers": FULL_RUN_HEADERS, "lora_config": {"rank": 32}}}[request.param]
    answer = create(http, **asked).json()
    http.result(answer["request_id"])
    return answer["model_id"]


def test_a_run_without_an_adapter_says_so_everywhere(gateway, http, full):
    assert gateway.worker.seen[-1].action.lora is None
    info = http.done("get_info", model_id=full)
    assert (info["is_lora"], info["lora_rank"], info["model_data"]["model_name"]) == (False, None, "toy")
    listed = http.get(f"training_runs/{full}").json()
    assert (listed["is_lora"], listed["lora_rank"]) == (False, None)
    http.result(http.done("save_weights", model_id=full, seq_id=1, path="a")["request_id"])
    told = http.done("weights_info", tinker_path=f"tinker://{full}/weights/a")
    assert (told["is_lora"], told["lora_rank"], told["train_mlp"]) == (False, None, True)


@pytest.mark.parametrize("value", ["0", "true", ""])
def test_the_header_takes_one_value_only(http, value):
    answer = create(http, headers={"X-OpenRL-Full": value}, lora_config={"rank": 8})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("X-OpenRL-Full: is ")


def test_folders_of_whole_models_are_told_by_their_keys(gateway, http, full):
    adapter = http.run()
    keys = {}
    for run in (full, adapter):
        for turn, path in ((1, "save_weights"), (2, "save_weights_for_sampler")):
            http.result(http.done(path, model_id=run, seq_id=turn, path="a")["request_id"])
            keys[run, path] = gateway.worker.seen[-1].action.target
    assert keys[full, "save_weights"].startswith("checkpoints/full-")
    assert "full" not in keys[adapter, "save_weights"] + keys[adapter, "save_weights_for_sampler"]


def test_weights_and_adapters_are_not_loaded_into_each_other(http, full):
    adapter = http.run()
    for run in (full, adapter):
        http.result(http.done("save_weights", model_id=run, seq_id=1, path="a")["request_id"])
    for run, other in ((full, adapter), (adapter, full)):
        path = f"tinker://{other}/weights/a"
        refused = http.call("load_weights", model_id=run, seq_id=2, path=path, optimizer=False)
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith("path: the checkpoint has a")
    session = http.session()
    loaded = http.done(
        "load_weights", session_id=session, model_seq_id=0, path=f"tinker://{full}/weights/a", optimizer=True
    )
    http.result(loaded["request_id"])
    assert http.done("get_info", model_id=f"{session}:train:0")["is_lora"] is False
