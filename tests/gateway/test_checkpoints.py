"""Runs and checkpoints over REST; run ids hold colons."""

import pytest


@pytest.fixture
def run(http):
    run = http.run()
    for turn, (path, name) in enumerate(
        [("save_weights", "a"), ("save_weights_for_sampler", "b"), ("save_weights", "c")], start=1
    ):
        saved = http.done(path, model_id=run, seq_id=turn, path=name, user_metadata={"n": name})
        http.result(saved["request_id"])
    return run


def test_checkpoints_are_listed(http, run):
    listed = http.get(f"training_runs/{run}/checkpoints").json()["checkpoints"]
    assert [each["checkpoint_id"] for each in listed] == ["weights/a", "sampler_weights/b", "weights/c"]
    assert listed[1]["checkpoint_type"] == "sampler"
    assert listed[1]["tinker_path"] == f"tinker://{run}/sampler_weights/b"
    assert listed[1]["user_metadata"] == {"n": "b"}
    assert listed[1]["size_bytes"] > 0
    page = http.get("checkpoints", params={"limit": 2}).json()
    assert len(page["checkpoints"]) == 2
    assert page["cursor"]["total_count"] >= 3


def test_a_run_tells_its_latest_checkpoints(http, run):
    found = http.get(f"training_runs/{run}").json()
    assert found["last_checkpoint"]["checkpoint_id"] == "weights/c"
    assert found["last_sampler_checkpoint"]["checkpoint_id"] == "sampler_weights/b"
    assert found in http.get("training_runs").json()["training_runs"]


def test_a_deleted_checkpoint_is_gone_with_its_bytes(gateway, http, run):
    assert http.delete(f"training_runs/{run}/checkpoints/weights/a").status_code == 200
    assert http.delete(f"training_runs/{run}/checkpoints/weights/a").status_code == 404
    listed = http.get(f"training_runs/{run}/checkpoints").json()["checkpoints"]
    assert [each["checkpoint_id"] for each in listed] == ["sampler_weights/b", "weights/c"]


def test_a_ttl_is_set_and_taken_away(http, run):
    path = f"training_runs/{run}/checkpoints/weights/a"
    assert http.put(f"{path}/ttl", json={"ttl_seconds": 3600}).status_code == 200
    assert http.get(f"training_runs/{run}/checkpoints").json()["checkpoints"][0]["expires_at"]
    assert http.put(f"{path}/ttl", json={"ttl_seconds": None}).status_code == 200
    assert http.get(f"training_runs/{run}/checkpoints").json()["checkpoints"][0]["expires_at"] is None
    assert http.put(f"{path}/ttl", json={"ttl_seconds": 0}).status_code == 422


def test_weights_describe_themselves(http, run):
    info = http.done("weights_info", tinker_path=f"tinker://{run}/weights/a")
    assert (info["base_model"], info["is_lora"], info["lora_rank"], info["train_mlp"]) == ("toy", True, 8, True)


def test_only_kinds_that_exist_are_taken(http, run):
    assert http.delete(f"training_runs/{run}/checkpoints/other/a").status_code == 422
