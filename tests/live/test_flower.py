"""What Flower shows of the work."""

import re
import time
from typing import Any

import httpx
import pytest
import tinker
from living import Server, wait_for
from loops import sft_datum

pytestmark = pytest.mark.live


def flower(server: Server, path: str, **options: Any) -> httpx.Response:
    found = re.match(r"\S+", server.status["parts"]["flower"]["address"])
    assert found is not None
    return httpx.get(found.group() + path, timeout=10, **options)


def test_ops_are_shown_under_telling_names_with_run_turn_tokens_and_outcome(server: Server) -> None:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    client = service.create_lora_training_client(base_model="tiny", rank=4).result()
    run = client.get_info().model_id
    client.forward_backward([sft_datum()], "cross_entropy").result()
    client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    client.save_state("once").result()
    with pytest.raises(tinker.RequestFailedError):
        client.save_state("once").result()
    client.save_weights_and_get_sampling_client().result().sample(
        tinker.ModelInput.from_ints([1, 2, 3]), 2, tinker.SamplingParams(max_tokens=2)
    ).result()

    def shown() -> dict[str, tuple[str, str, float | None]]:
        tasks = flower(server, "/api/tasks", auth=("openrl", server.api_key), params={"limit": 200}).json()
        return {
            f"{task['name']} {task['args'].partition('turn=')[2].split(' ')[0]}": (
                task["args"],
                task["state"],
                task["runtime"],
            )
            for task in tasks.values()
            if run.partition(":")[0] in task["args"]
        }

    wait_for("Flower to have seen the sample", lambda: any(name.startswith("sample.") for name in shown()), 15)
    time.sleep(0.5)
    tasks = shown()
    args, state, runtime = tasks["train.forward_backward 1"]
    assert args == f"run={run} turn=1 tokens=6 datums=1 loss=cross_entropy"
    assert state == "SUCCESS"
    assert runtime is not None
    assert runtime > 0
    assert tasks["train.create_run 0"][1] == "SUCCESS"
    assert tasks["train.optim_step 2"][0].endswith("lr=0.001")
    assert tasks["train.save_weights 4"][1] == "FAILURE"
    assert any("tokens=3 samples=2 max_tokens=2" in args for args, _, _ in tasks.values())


def test_flower_asks_who_is_there(server: Server) -> None:
    for path in ("/tasks", "/api/tasks", "/workers"):
        assert flower(server, path).status_code == 401
