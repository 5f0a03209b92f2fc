"""What processes tell of their health: at work, deaf, and as the first process of a container."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import tinker
from living import Server, sdk_environment, wait_for
from loops import train
from scraping import probe, values

from openrl.cli.ports import free_port
from queues.app import make_app
from workers.health import SILENT_SECONDS

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

GATEWAY, DEVICE, REWARD = range(3)  #: the order of ports


@pytest.fixture(scope="module")
def first_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, first_port: int) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("told")
    server = Server.start(home, "--no-flower", "--dtype", "float32", OPENRL_METRICS__PORT=str(first_port))
    yield server
    server.stop()


def start_reward(server: Server, broker: str, port: int, log: Path, *before: str) -> subprocess.Popen[bytes]:
    settings = {
        "OPENRL_REDIS_URL": broker,
        "OPENRL_DATA_DIR": str(server.home),
        "OPENRL_METRICS__PORT": str(port),
        "OPENRL_WORKER__SANDBOX": "limits",
    }
    command = [*before, sys.executable, "-m", "openrl.cli.main", "worker", "reward"]
    with log.open("wb") as out:
        return subprocess.Popen(command, env=sdk_environment() | settings, stdout=out, stderr=out)


def is_ready(port: int) -> bool:
    with suppress(OSError):
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass
        return probe(port, "readyz")[0] == 200
    return False


class Proxy:
    """Between a worker and its broker. Once it is `deafened`, connections that ask for bells get no answer any more,
    and nobody closes them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._there = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}"))
        self.deafened = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._there)
                self._open += [here, there]
                asks = threading.Event()
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(*pair, asks), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, asks: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if b"BRPOP" in data:
                    asks.set()
                if not (self.deafened and asks.is_set()):
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_a_worker_that_lives_but_hears_no_bells_is_told_to_be_sick(told: Server, first_port: int) -> None:
    """One is cut off from its bells alone, of another a queue was taken away; both go on living and renewing."""
    broker, port = told.status["broker"], free_port()
    proxy = Proxy(broker)
    worker = start_reward(told, proxy.url, port, told.home / "deaf.log")
    try:
        wait_for("the worker to be ready", lambda: is_ready(port), 60)
        assert probe(port) == (200, "ok") == probe(first_port + REWARD)
        proxy.deafened = True
        make_app(broker).control.cancel_consumer("reward.1", destination=[_reward_of(told)])
        deaf_at = time.monotonic()
        wait_for("the deaf one to be told", lambda: probe(port)[0] == 503, SILENT_SECONDS + 15)
        wait_for("the other to be told", lambda: probe(first_port + REWARD)[0] == 503, SILENT_SECONDS + 15)
        print(f"told after {time.monotonic() - deaf_at:.0f} s: {probe(port)[1]}")
        assert worker.poll() is None and "the broker answers others" in probe(port)[1]
        assert probe(port, "readyz")[0] == 503
        assert values(port)["openrl_worker_silent_seconds",] >= SILENT_SECONDS
        assert probe(first_port + DEVICE) == (200, "ok"), "its neighbour is well"
        proxy.close()
        wait_for("no restart where the broker answers nobody", lambda: probe(port)[0] == 200)
    finally:
        proxy.close()
        worker.kill()
        worker.wait()
        told.kill("reward worker")


def _reward_of(server: Server) -> str:
    import redis

    from openrl.ledger.roster import RedisRoster

    with redis.Redis.from_url(server.status["broker"]) as client:
        pid = server.pid("reward worker")
        return next(f"reward@{each.id}" for each in RedisRoster(client).workers() if each.pid == pid)


def test_what_was_trained_sampled_and_asked_is_counted(told: Server, first_port: int) -> None:
    service = tinker.ServiceClient(base_url=told.url, api_key=told.api_key)
    client = service.create_lora_training_client(base_model="tiny", rank=4).result()
    train(client, steps=2)
    sampler = client.save_weights_and_get_sampling_client().result()
    sampler.sample(tinker.ModelInput.from_ints([1, 2, 3]), 2, tinker.SamplingParams(max_tokens=5, stop=[])).result()
    gateway, device = values(first_port + GATEWAY), values(first_port + DEVICE)
    assert gateway["openrl_http_requests_total", "POST", "/api/v1/forward_backward", "200"] >= 4
    assert gateway["openrl_queue_workers", "tiny", "train"] == 1 == gateway["openrl_queue_workers", "tiny", "sample"]
    assert gateway["openrl_queue_slots", "tiny", "sample"] > 0
    assert device["openrl_worker_ops_total", "forward_backward", "done"] >= 4
    assert device["openrl_worker_ops_total", "optim_step", "done"] >= 2
    assert device["openrl_pack_seconds_count",] >= 1 and device["openrl_update_seconds_count",] >= 1
    assert device["openrl_device_side_tokens_total", "train"] > 0
    assert device["openrl_device_side_tokens_total", "sample"] >= 10
    assert 0 < device["openrl_device_busy_seconds_total",] <= device["openrl_device_up_seconds_total",]
    assert device["openrl_worker_start_seconds", "base model"] > 0
    assert device["openrl_worker_ready",] == 1


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs a process namespace of its own")
def test_the_first_process_of_a_container_stops_when_told_whatever_it_is_at(told: Server) -> None:
    for ready in (False, True):
        port, log = free_port(), told.home / "first.log"
        unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        worker = start_reward(told, told.status["broker"], port, log, *unshare)
        try:
            wait_for("its port", lambda port=port: _answers(port), 60)
            if ready:
                wait_for("the worker to be ready", lambda port=port: is_ready(port), 60)
            inner = int(Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()[0])
            os.kill(inner, signal.SIGTERM)
            began = time.monotonic()
            assert worker.wait(30) == 0, log.read_text()
            print(f"stopped in {time.monotonic() - began:.1f} s")
        finally:
            worker.kill()
            worker.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
