"""A small loop of reinforcement learning, as a user would write it: the tinker SDK, and rollouts of the client."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tinker
from living import Server, sdk_environment
from tinker import types

import openrl

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

TOUR = Path(__file__).parents[2] / "docs" / "howto" / "rollouts.md"
STEPS = 2
PATTERN = "e"


def test_the_sdk_and_rollouts_train_together(server: Server, service: tinker.ServiceClient) -> None:
    training = service.create_lora_training_client("tiny", rank=4, seed=1).result()
    prompts = [openrl.Prompt([{"role": "user", "content": f"{n}?"}], id=f"p{n}") for n in range(4)]
    reward = [openrl.Reward("regex", params={"pattern": PATTERN})]
    policies, norms = set(), []
    with openrl.Client(server.url, server.api_key) as client:
        for _ in range(STEPS):
            sampler = training.save_weights_and_get_sampling_client().result()
            batch = client.rollouts.create(prompts, sampler, group_size=8, sampling={"max_tokens": 6}, reward=reward)
            groups = batch.results()
            policies |= {group.policy for group in groups}
            rewards = {rollout.text: rollout.reward for group in groups for rollout in group.rollouts}
            assert all(reward == (PATTERN in text) for text, reward in rewards.items())
            data = openrl.to_datums(groups)
            assert data, "some group has both kinds"
            trained = training.forward_backward(data, "importance_sampling")
            stepped = training.optim_step(types.AdamParams(learning_rate=1e-2))
            assert trained.result().metrics["ratio_mean:mean"] == pytest.approx(1.0, abs=0.05)
            norms.append(stepped.result().metrics["grad_norm"])
            assert batch.state().reward.mean == pytest.approx(
                sum(r.reward for group in groups for r in group.rollouts) / (8 * len(prompts))
            )
        assert len(policies) == STEPS, "each step samples from new weights"
        assert all(norm > 0 for norm in norms)
        ppo = training.forward_backward(data, "ppo").result()
        assert len(ppo.loss_fn_outputs) == len(data)


def test_the_loop_in_the_documents_runs(server: Server) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TOUR.read_text(), re.DOTALL)
    first, loop = (block.replace("smollm2-135m", "tiny").replace("range(20)", "range(2)") for block in blocks[:2])
    where = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key}
    for block, lines in ((first, 8), (loop, 2)):
        done = subprocess.run(
            [sys.executable, "-c", block], capture_output=True, text=True, env=sdk_environment() | where, timeout=90
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(re.findall(r"^\d", done.stdout, re.MULTILINE)) >= lines, done.stdout


def openrl_command(server: Server, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "openrl.cli.main", *words, "--data-dir", str(server.home)],
        capture_output=True,
        text=True,
        env=sdk_environment() | {"COLUMNS": "140"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_queues_and_ops_are_told_while_a_batch_runs(server: Server) -> None:
    with openrl.Client(server.url, server.api_key) as client:
        batch = client.rollouts.create(
            ["A"] * 200, "tiny", group_size=4, sampling={"max_tokens": 200}, reward=[("regex", 1.0, {"pattern": "a"})]
        )
        queues = {queue["kind"]: queue for queue in json.loads(openrl_command(server, "queues", "--json"))}
        sample = queues["sample"]
        assert (sample["model"], sample["workers"]) == ("tiny", 1) and sample["slots"] > 0
        assert sample["own"]["waiting"] > 0 and sample["own"]["oldest_seconds"] > 0
        table = openrl_command(server, "queues")
        assert "yours" in table and "tiny" in table
        everyone = json.loads(openrl_command(server, "queues", "--all", "--json"))
        assert [share["tenant"] for queue in everyone for share in queue["tenants"] if queue["kind"] == "sample"] == [
            "local"
        ]
        assert "local" in openrl_command(server, "queues", "--all")
        assert "in line" in openrl_command(server, "ops", "show", f"{batch.id}.199.sample")
        assert f"{batch.id}.199.sample waiting" in openrl_command(server, "ops", "show", f"{batch.id}.199.reward")
        next(iter(batch))
        assert batch.cancel().status == "cancelled"
    over = json.loads(openrl_command(server, "ops", "show", f"{batch.id}.199.reward", "--json"))
    assert (over["status"], over["error"]["error"]) == ("failed", "OpCancelled")
