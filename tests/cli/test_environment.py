from pathlib import Path

import pytest

from openrl.cli.environment import child_env, variables
from openrl.config import Gateway, Reward, Sample, Settings, Train, Vllm, Worker, load

SETTINGS = Settings(
    data_dir=Path("/data"),
    redis_url="redis://:pw@127.0.0.1:1/0",
    base_model="tiny",
    gateway=Gateway(port=8123),
    train=Train(pack_tokens=99),
    sample=Sample(engine="torch", vllm=Vllm(extra='{"block_size": 32, "more": ["a", "b"]}')),
    worker=Worker(device="cpu", dtype="float32"),
    reward=Reward(source=True, webhook_urls=("https://a.b/c", "http://127.0.0.1:1/"), webhook_key="env:A"),
)


def test_a_child_reads_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(SETTINGS).items():
        monkeypatch.setenv(name, value)
    assert load() == SETTINGS


def test_nested_settings_are_joined_by_two_underscores() -> None:
    assert variables(SETTINGS)["OPENRL_GATEWAY__PORT"] == "8123"


def test_settings_that_are_none_are_left_out() -> None:
    assert "OPENRL_CATALOG_URL" not in variables(SETTINGS)


def test_the_parents_own_settings_are_not_inherited() -> None:
    env = child_env(SETTINGS, {"OPENRL_API_KEY": "tml-x", "OPENRL_SAMPLE__LANES": "7", "HOME": "/me"})
    assert "OPENRL_API_KEY" not in env
    assert env["OPENRL_SAMPLE__LANES"] == "4"
    assert env["HOME"] == "/me"


def test_waiting_threads_do_not_spin_unless_told_to() -> None:
    assert child_env(SETTINGS, {})["OMP_WAIT_POLICY"] == "PASSIVE"
    assert child_env(SETTINGS, {"OMP_WAIT_POLICY": "ACTIVE"})["OMP_WAIT_POLICY"] == "ACTIVE"
