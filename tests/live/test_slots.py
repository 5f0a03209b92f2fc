"""Many more runs than a worker's memory holds: all train, round robin, and each as if it were alone."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tinker
from living import Server
from loops import sft_datum

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

#: TEST_RUNS=1000 for the record.
RUNS = int(os.environ.get("TEST_RUNS", "200"))
KINDS = 5  #: different seeds and targets; the others repeat them
RUN_MB = 0.168  #: rank 4 of the tiny model: weights, moments and gradient
ROOM = 40  #: runs that memory holds


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Server]:
    """A server whose memory holds few runs."""
    server = Server.start(
        tmp_path, "--dtype", "float32", "--no-flower", OPENRL_TRAIN__DEVICE_MEMORY_MB=str(ROOM * RUN_MB)
    )
    yield server
    if server.process.poll() is None:
        server.stop()


def steps(client: tinker.TrainingClient, kind: int) -> Iterator[float]:
    """A step each time it is asked for one; its loss."""
    while True:
        result = client.forward_backward([sft_datum(target=[101 + kind, 202, 303])], "cross_entropy")
        client.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
        yield result.result().metrics["loss:sum"]


def test_more_runs_than_memory_holds_train_as_alone(cramped: Server) -> None:
    service = tinker.ServiceClient(base_url=cramped.url, api_key=cramped.api_key)

    def begin(number: int) -> Iterator[float]:
        client = service.create_lora_training_client(base_model="tiny", rank=4, seed=1 + number % KINDS).result()
        return steps(client, number % KINDS)

    alone = [[next(run), next(run)] for run in map(begin, range(KINDS))]
    with ThreadPoolExecutor(16) as pool:
        runs = list(pool.map(begin, range(RUNS)))
        first = list(pool.map(next, runs))
        second = list(pool.map(next, runs))
    for number, losses in enumerate(zip(first, second, strict=True)):
        assert list(losses) == pytest.approx(alone[number % KINDS], rel=1e-3)
    cramped.stop()
    paged = re.findall(r"(\d+) runs from the depot, (\d+) to it", (cramped.home / "logs" / "device.log").read_text())
    print(f"{sum(int(came) for came, _ in paged)} came, {sum(int(went) for _, went in paged)} went")
    assert sum(int(came) for came, _ in paged) > RUNS - ROOM
