"""Processes die; clients notice nothing."""

import os
import signal
import threading
import time

import pytest
import tinker
from living import Server, wait_for
from loops import train

import openrl

pytestmark = pytest.mark.live


def test_a_killed_gateway_costs_a_client_nothing_but_time(server: Server) -> None:
    url = server.url
    service = tinker.ServiceClient(base_url=url, api_key=server.api_key)
    undisturbed = train(service.create_lora_training_client(base_model="tiny", rank=4, seed=9).result(), steps=20)
    client = service.create_lora_training_client(base_model="tiny", rank=4, seed=9).result()
    losses: list[float] = []
    loop = threading.Thread(target=lambda: losses.extend(train(client, steps=20)))
    loop.start()
    time.sleep(0.3)
    server.kill("gateway")
    loop.join(100)
    assert losses == pytest.approx(undisturbed, rel=1e-4), "no op was lost or applied twice"


def test_a_reward_worker_killed_at_work_costs_a_client_nothing_but_time(server: Server) -> None:
    """The pattern backtracks for a moment on every text, long enough in all to kill whoever is at it."""
    client = openrl.Client(base_url=server.url, api_key=server.api_key)
    scores: list[float] = []
    slow = {"reward": "regex", "texts": ["a" * 22 + "b"] * 20, "params": {"pattern": "^(a|a)*$"}}
    call = threading.Thread(target=lambda: scores.extend(client.score(**slow)))
    call.start()
    time.sleep(0.7)
    assert call.is_alive(), "the op was over before anybody could be killed"
    server.kill("reward worker")
    call.join(100)
    assert scores == [0.0] * 20


def test_a_killed_broker_comes_back_with_everything_in_it(server: Server) -> None:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    client = service.create_lora_training_client(base_model="tiny", rank=4, seed=5).result()
    before = train(client, steps=3)
    server.kill("broker")
    after = train(client, steps=3)
    assert after[-1] < before[0]


def test_a_killed_device_worker_costs_a_client_nothing_but_time(server: Server) -> None:
    """Twice: before anything was in a snapshot, and with a snapshot and a journal behind it."""
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    undisturbed = train(service.create_lora_training_client(base_model="tiny", rank=4, seed=6).result(), steps=40)
    client = service.create_lora_training_client(base_model="tiny", rank=4, seed=6).result()
    losses = train(client, steps=10)
    server.kill("device worker")
    losses += train(client, steps=15)
    time.sleep(8)
    losses += train(client, steps=5)
    loop = threading.Thread(target=lambda: losses.extend(train(client, steps=10)))
    loop.start()
    time.sleep(0.1)
    server.kill("device worker")
    loop.join(100)
    assert losses == pytest.approx(undisturbed, rel=1e-4), "no op was lost or applied twice"


def test_the_server_leaves_no_process_behind(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Server.start(tmp_path_factory.mktemp("brief"), "--no-flower")
    os.kill(server.pid("device worker"), signal.SIGTERM)
    wait_for("the server to answer", lambda: server.process.poll() is None)
    server.stop()
