"""A batch of rollouts, while its client and everything that serves it die, each once and in the middle of something."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from living import Server, sdk_environment, wait_for

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "reader.py"
PROMPTS, SAMPLES = 24, 4
REWARD_WORKER_DIES, GATEWAY_DIES, CLIENT_DIES = 2, 4, 8  #: when so many groups have come
PATTERN = r".*[aeiou].*[0-9]"
#: It takes a text a tenth of a second, for nothing: long enough to kill whoever is at it.
SLOW = r"(?s)^(?:(?:.|.){19}(?!)|%s)"
NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"

Told = dict[str, Any]


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose sample worker does nothing else."""
    server = Server.start(tmp_path_factory.mktemp("apart"), "--no-flower", "--separate", "--dtype", "float32")
    yield server
    server.stop()


class Reader:
    """A process that reads a batch by the client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process, self._lines = process, process.stdout
        self.groups: list[Told] = []

    def hear(self) -> Told:
        """The next that it tells. Its death is an AssertionError."""
        line = self._lines.readline()
        assert line, f"the client ended early ({self._process.wait()})"
        told: Told = json.loads(line)
        self.groups += [told["group"]] if "group" in told else []
        return told

    def until(self, groups: int) -> None:
        while len(self.groups) < groups:
            assert "group" in self.hear(), f"the batch was over before {groups} groups were heard of"

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def reading(server: Server, *what: str, wanted: Told | None = None) -> Iterator[Reader]:
    env = sdk_environment() | {"OPENRL_BASE_URL": server.url, "OPENRL_API_KEY": server.api_key}
    command = [sys.executable, str(PROGRAM), *what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(wanted))
        process.stdin.close()
        try:
            yield Reader(process)
        finally:
            process.kill()


def request(key: str) -> Told:
    said = [[{"role": "user", "content": f"{number} and {number}?"}] for number in range(PROMPTS)]
    return {
        "key": key,
        "base_model": "tiny",
        "prompts": [
            {"content": messages, "context": {"answer": number % 10}, "id": f"p{number}"}
            for number, messages in enumerate(said)
        ],
        "group_size": SAMPLES,
        "sampling": {"max_tokens": 300, "temperature": 1.0, "seed": 7},
        "reward": [{"name": "regex", "weight": 2.0, "params": {"pattern": SLOW % PATTERN}}, {"name": "numeric"}],
    }


def reward_of(text: str, answer: int) -> float:
    numbers = re.findall(NUMBER, text)
    right = bool(numbers) and abs(float(numbers[-1].replace(",", "")) - answer) <= 1e-6
    return 2.0 * bool(re.match(PATTERN, text, re.DOTALL)) + right


def ops(server: Server, batch: str, kind: str) -> list[Told]:
    """What the batch's ops of a kind have been through, in the order of its prompts."""
    with httpx.Client(base_url=f"{server.url}/openrl/v1/ops", headers={"x-api-key": server.api_key}) as http:
        answers = [http.get(f"{batch}.{number}.{kind}", params={"life": True}) for number in range(PROMPTS)]
    assert all(answer.status_code == 200 for answer in answers)
    return [answer.json() for answer in answers]


def at_work(server: Server, batch: str, kind: str) -> bool:
    return any(op["status"] == "held" for op in ops(server, batch, kind))


def test_every_rollout_comes_once_whoever_dies(apart: Server) -> None:
    wanted = request("a-key-of-the-live-test")
    with reading(apart, "create", wanted=wanted) as first:
        batch = first.hear()["batch"]
        wait_for("a sample to be drawn", lambda: at_work(apart, batch, "sample"))
        apart.kill("sample worker")
        first.until(REWARD_WORKER_DIES)
        wait_for("a text to be scored", lambda: at_work(apart, batch, "reward"))
        apart.kill("reward worker")
        first.until(GATEWAY_DIES)
        apart.kill("gateway")
        first.until(CLIENT_DIES)
        first.kill()
    with reading(apart, "attach", batch) as second:
        assert second.hear()["batch"] == batch
        second.until(PROMPTS)
        state = second.hear()["state"]
    assert second.groups[:CLIENT_DIES] == first.groups, "a client that comes again is told the same"
    check(second.groups, state)
    samples, rewards = ops(apart, batch, "sample"), ops(apart, batch, "reward")
    assert {op["status"] for op in (*samples, *rewards)} == {"done"}
    assert max(op["attempts"] for op in samples) >= 2, "the sample worker died with samples in its hands"
    assert max(op["attempts"] for op in rewards) >= 2, "the reward worker died with texts in its hands"
    with reading(apart, "create", wanted=wanted) as third:
        assert third.hear()["batch"] == batch, "a request with the same key is the same batch"
        third.until(PROMPTS)
    assert third.groups == second.groups


def check(groups: list[Told], state: Told) -> None:
    assert sorted(group["index"] for group in groups) == list(range(PROMPTS))
    for group in groups:
        assert group["dropped"] == [] and group["id"] == f"p{group['index']}"
        assert [rollout["sample"] for rollout in group["rollouts"]] == list(range(SAMPLES))
        for rollout in group["rollouts"]:
            assert rollout["reward"] == reward_of(rollout["text"], group["index"] % 10), rollout["text"]
            assert len(rollout["tokens"]) == len(rollout["logprobs"]) > 0
    rewards = [rollout["reward"] for group in groups for rollout in group["rollouts"]]
    assert len(set(rewards)) > 1, "rewards that are all alike prove nothing"
    assert state["status"] == "done" and state["groups_done"] == PROMPTS
    assert (state["asked"], state["done"], state["dropped"]) == (len(rewards), len(rewards), 0)
    assert state["reward"]["mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert (state["reward"]["min"], state["reward"]["max"]) == (min(rewards), max(rewards))
