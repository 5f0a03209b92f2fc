"""A train worker of two processes: clients see one worker, and when one process dies another group goes on."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis
import tinker
from living import Server, sdk_environment, wait_for
from loops import train

from openrl.ledger.roster import RedisRoster
from openrl.models import tiny

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

STEPS = 6


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The tiny model under a name of its own, which only the group serves."""
    folder = tmp_path / "twin"
    tiny.make(folder)
    return folder


@contextmanager
def group(server: Server, model: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`openrl worker train --processes 2`, ready."""
    settings = {
        "OPENRL_REDIS_URL": server.status["broker"],
        "OPENRL_DATA_DIR": str(server.home),
        "OPENRL_BASE_MODEL": str(model),
        "OPENRL_WORKER__DTYPE": "float32",
        "OPENRL_WORKER__DEVICE": "cpu",
    }
    command = [sys.executable, "-m", "openrl.cli.main", "worker", "train", "--processes", "2"]
    log = model.parent / "group.log"
    with log.open("ab") as out:
        launcher = subprocess.Popen(command, env=sdk_environment() | settings, stdout=out, stderr=out)
    try:
        wait_for("the group to be ready", lambda: launcher.poll() is not None or is_served(server, launcher), 90)
        assert launcher.poll() is None, log.read_text()[-4000:]
        yield launcher
    finally:
        family = ranks(launcher).values()
        launcher.terminate()
        launcher.wait(60)
        left = [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"left behind: {left}"


def is_served(server: Server, launcher: subprocess.Popen[bytes]) -> bool:
    """Whether rank 0 has announced itself."""
    with redis.Redis.from_url(server.status["broker"]) as client:
        pids = {worker.pid for worker in RedisRoster(client).workers()}
    first = ranks(launcher).get(0)
    return first is not None and first.pid in pids


def ranks(launcher: subprocess.Popen[bytes]) -> dict[int, psutil.Process]:
    """The processes of a group that runs."""
    if launcher.poll() is not None:
        return {}
    children = psutil.Process(launcher.pid).children()
    return {int(each.environ()["RANK"]): each for each in children if "RANK" in each.environ()}


def new_run(server: Server, model: str) -> tinker.TrainingClient:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    return service.create_lora_training_client(base_model=model, rank=4, seed=1).result()


def test_a_group_trains_as_one_process_and_survives_the_death_of_a_rank(server: Server, model: Path) -> None:
    alone = train(new_run(server, "tiny"), STEPS)
    with group(server, model) as first:
        client = new_run(server, str(model))
        losses = train(client, STEPS // 2)
        saved = client.save_state("half").result().path
        ranks(first)[1].send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        assert first.wait(10) == 75, "rank 0 says that it can be started again"
        print(f"all ended {time.monotonic() - killed_at:.1f} s after one was killed")
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(train, client, STEPS - STEPS // 2)
            with group(server, model) as second:
                losses += rest.result(60)
                assert losses == pytest.approx(alone, rel=1e-3), "no op was lost or applied twice"
                service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
                again = service.create_training_client_from_state_with_optimizer(saved).result()
                assert train(again, STEPS - STEPS // 2) == pytest.approx(losses[STEPS // 2 :], rel=1e-3)
                second.terminate()
                assert second.wait(40) == 0
