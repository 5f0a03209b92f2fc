"""Several workers of a kind, and several base models: runs are spread, move when a worker goes or comes, and nobody's
numbers tell where they were computed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
import redis
import tinker
from living import Server, sdk_environment, wait_for
from loops import sft_datum, train

from openrl.domain.ids import WorkerId
from openrl.ledger.roster import RedisRoster
from openrl.models import tiny
from openrl.models.catalogue import resolve

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

CLIENTS = 6
STEPS = 45
RATE = 2e-3  #: so slow that losses stay far from 0, where they would tell of rounding and not of ops
HOLD_SECONDS = 10.0  #: after which a silent worker has lost its runs
RING_AGAIN_SECONDS = 5.0  #: one bell may have been handed to the sleeper
FIRST, SECOND = "device worker", "device worker 2"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two device workers."""
    server = Server.start(tmp_path_factory.mktemp("pair"), "--dtype", "float32", "--no-flower", "--device-workers", "2")
    yield server
    server.stop()


class Run:
    """A client that trains on a thread of its own."""

    def __init__(self, server: Server, seed: int) -> None:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        self.client = service.create_lora_training_client(base_model=server.model, rank=4, seed=seed).result()
        self.id = self.client.get_info().model_id
        self.losses: list[float] = []
        self.ended_at: list[float] = []  #: of each step

    def live(self, steps: int = STEPS, pause_seconds: float = 0.0) -> None:
        for _ in range(steps):
            self.losses += train(self.client, steps=1, rate=RATE)
            self.ended_at.append(time.monotonic())
            time.sleep(pause_seconds)

    def silence_from(self, moment: float) -> float:
        """Seconds until it went on after a moment."""
        return next(at for at in self.ended_at if at > moment) - moment


def longest_silence(runs: list[Run]) -> float:
    """Seconds between two steps."""
    return max(after - before for run in runs for before, after in pairwise(run.ended_at))


class Fleet:
    """All clients at once."""

    def __init__(self, server: Server, pause_seconds: float = 0.0) -> None:
        self.pool = ThreadPoolExecutor(CLIENTS)
        self.server, self.pause_seconds = server, pause_seconds
        self.runs = list(self.pool.map(lambda seed: Run(server, seed), range(1, CLIENTS + 1)))
        self.lives: list[Future[None]] = []

    def start(self) -> None:
        self.lives = [self.pool.submit(run.live, STEPS, self.pause_seconds) for run in self.runs]
        wait_for("everybody to be under way", lambda: all(len(run.losses) > 3 for run in self.runs))

    def finish(self) -> list[list[float]]:
        for life in self.lives:
            life.result(150)
        self.pool.shutdown()
        return [run.losses for run in self.runs]

    def at(self, part: str) -> list[Run]:
        """The runs that this part leases now."""
        pid = self.server.pid(part)
        return [run for run in self.runs if holder_pid(self.server, run.id) == pid]


def holder_pid(server: Server, run: str) -> int | None:
    """The process that leases a run."""
    with redis.Redis.from_url(server.status["broker"]) as client:
        holder = client.hget(f"openrl:lease:{run}", "holder")
        pids = {worker.id: worker.pid for worker in RedisRoster(client).workers()}
    return pids.get(WorkerId(holder.decode())) if isinstance(holder, bytes) else None


@pytest.fixture(scope="module")
def undisturbed(pair: Server) -> list[list[float]]:
    """The losses of each client, alone at its worker."""
    losses = []
    for seed in range(1, CLIENTS + 1):
        run = Run(pair, seed)
        run.live()
        losses.append(run.losses)
    return losses


def assert_equal(found: list[list[float]], expected: list[list[float]]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3), "no op was lost or applied twice"


def test_runs_are_spread_evenly_and_train_as_alone(pair: Server, undisturbed: list[list[float]]) -> None:
    fleet = Fleet(pair)
    fleet.start()
    assert {len(fleet.at(FIRST)), len(fleet.at(SECOND))} <= {2, 3, 4}
    assert len(fleet.at(FIRST)) + len(fleet.at(SECOND)) == CLIENTS
    assert_equal(fleet.finish(), undisturbed)


def test_a_killed_workers_runs_go_on_at_the_other_and_some_come_back(
    pair: Server, undisturbed: list[list[float]]
) -> None:
    fleet = Fleet(pair, pause_seconds=0.3)
    fleet.start()
    orphans = fleet.at(FIRST)
    assert orphans
    killed_at = time.monotonic()
    pair.kill(FIRST)
    assert_equal(fleet.finish(), undisturbed)
    silence = max(run.silence_from(killed_at) for run in orphans)
    print(f"recovered after {silence:.1f} s, longest silence {longest_silence(orphans):.1f} s")
    assert longest_silence(orphans) < 5, "its supervisor saw it die: nobody waited for its lease to lapse"


def test_a_worker_told_to_stop_hands_its_runs_over_and_gets_its_share_when_it_is_back(
    pair: Server, undisturbed: list[list[float]]
) -> None:
    fleet = Fleet(pair, pause_seconds=0.3)
    fleet.start()
    movers = fleet.at(FIRST)
    assert movers
    before = pair.pid(FIRST)
    os.kill(before, signal.SIGTERM)
    wait_for("another process", lambda: pair.pid(FIRST) != before)
    wait_for("runs to come back", lambda: len(fleet.at(FIRST)) >= 2)
    assert_equal(fleet.finish(), undisturbed)
    print(f"handed over within {longest_silence(movers):.1f} s; longest silence {longest_silence(fleet.runs):.1f} s")
    assert longest_silence(fleet.runs) < 4


def test_a_worker_that_slept_is_fenced_off_and_nothing_is_doubled(pair: Server, undisturbed: list[list[float]]) -> None:
    fleet = Fleet(pair, pause_seconds=0.3)
    fleet.start()
    orphans = fleet.at(SECOND)
    assert orphans
    pid = pair.pid(SECOND)
    os.kill(pid, signal.SIGSTOP)
    stopped_at = time.monotonic()
    try:
        time.sleep(HOLD_SECONDS + 5)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert_equal(fleet.finish(), undisturbed)
    silences = [run.silence_from(stopped_at) for run in orphans]
    print(f"went on elsewhere after {min(silences):.1f} to {max(silences):.1f} s")
    assert max(silences) < HOLD_SECONDS + RING_AGAIN_SECONDS + 3
    assert pair.pid(SECOND) == pid


# ------------------------------------------------------------------------------------------------ sampling
@pytest.fixture
def samplers(tmp_path: Path) -> Iterator[Server]:
    """A train worker and two sample workers."""
    server = Server.start(tmp_path, "--no-flower", "--separate", "--sample-workers", "2")
    yield server
    server.stop()


def test_samples_under_way_at_a_killed_sample_worker_all_end_once(samplers: Server) -> None:
    service = tinker.ServiceClient(base_url=samplers.url, api_key=samplers.api_key)
    sampler = service.create_sampling_client(base_model="tiny").result()
    prompt = tinker.ModelInput.from_ints([11, 12, 13])

    def ask(seed: int, tokens: int = 400) -> Future[tinker.SampleResponse]:
        params = tinker.SamplingParams(max_tokens=tokens, temperature=1.0, seed=seed, stop=[])
        return sampler.sample(prompt, 1, params)

    ask(0, tokens=1).result()
    asked = [ask(seed) for seed in range(100)]
    with redis.Redis.from_url(samplers.status["broker"]) as client:
        wait_for("both to be at work", lambda: len(held(client)) > 60 and len(set(held(client).values())) == 2)
        pid = samplers.pid("sample worker")
        dead = worker_of(client, pid)
        before = held(client)
        os.kill(pid, signal.SIGKILL)
        orphans = {op_id for op_id, holder in (before | held(client)).items() if holder == dead}
        wait_for("the other one to take over", lambda: any(held(client).get(op_id, dead) != dead for op_id in orphans))
        answers = [list(each.result(120).sequences[0].tokens) for each in asked]
        rows = {key: client.hgetall(key) for key in client.scan_iter("openrl:op:*")}
    assert {len(tokens) for tokens in answers} == {400}
    assert len(set(map(tuple, answers))) == 100, "each has its own seed"
    assert Counter(row[b"status"] for row in rows.values()) == {b"done": 101}
    assert all(row[b"settled_by"] == row[b"epoch"] == row[b"attempts"] for row in rows.values())
    again = {key.removeprefix(b"openrl:op:") for key, row in rows.items() if row[b"attempts"] != b"1"}
    assert again and again <= orphans, "only what the dead one held was done again"


def held(client: redis.Redis) -> dict[bytes, bytes]:
    """Who holds which op now."""
    found = {op_id: client.hget(b"openrl:op:" + op_id, "holder") for op_id in client.zrange("openrl:held", 0, -1)}
    return {op_id: holder for op_id, holder in found.items() if isinstance(holder, bytes)}


def worker_of(client: redis.Redis, pid: int) -> bytes:
    """The worker in that process."""
    return next(worker.id for worker in RedisRoster(client).workers() if worker.pid == pid).encode()


# ------------------------------------------------------------------------------------------------ base models
@pytest.fixture
def other_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with a smaller vocabulary than tiny's."""
    monkeypatch.setattr(tiny, "VOCAB_SIZE", 300)
    folder = tmp_path / "smaller"
    tiny.make(folder)
    return folder


def test_two_base_models_are_served_side_by_side(server: Server, other_model: Path) -> None:
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    other = str(other_model)
    refusal = r"'smaller' is not served here; served models: (?!.*smaller).*\btiny\b"
    with pytest.raises(tinker.UnprocessableEntityError, match=refusal):
        service.create_lora_training_client(base_model="smaller", rank=4).result()
    alone = losses_of(service, "tiny")
    log = other_model.parent / "worker.log"
    worker = start_worker(server, other, log)
    try:
        wait_for("the other model to be served", lambda: {"tiny", other} <= served(server), 60)
        with ThreadPoolExecutor(2) as pool:
            here, there = pool.map(lambda model: losses_of(service, model), ("tiny", other))
        assert here == pytest.approx(alone, rel=1e-3)
        assert there[0] != pytest.approx(here[0], rel=1e-2)
        assert there[-1] < there[0]
        client = service.create_lora_training_client(base_model=other, rank=4).result()
        with pytest.raises(tinker.APIError, match="vocabulary"):
            client.forward_backward([sft_datum(target=[301])], "cross_entropy").result()
        answer = (
            service.create_sampling_client(base_model=other)
            .result()
            .sample(tinker.ModelInput.from_ints([11]), 4, tinker.SamplingParams(max_tokens=64, stop=[]))
        )
        assert all(token < 300 for sequence in answer.result().sequences for token in sequence.tokens)
    finally:
        worker.terminate()
        worker.wait(60)
        withdraw(server, other)
    assert worker.returncode == 0, log.read_text()[-2000:]
    wait_for("the model to be gone", lambda: other not in served(server))


def losses_of(service: tinker.ServiceClient, model: str) -> list[float]:
    client = service.create_lora_training_client(base_model=model, rank=4, seed=1).result()
    return train(client, steps=5, target=[101, 202, 203])


def served(server: Server, *, bounded: bool = True) -> set[str | None]:
    """Models that a worker told the bounds of, or those that are only waited for."""
    rest = tinker.RestClient(base_url=server.url, api_key=server.api_key)
    models = rest.get_server_capabilities().result().supported_models
    return {model.model_name for model in models if (model.max_context_length is not None) is bounded}


def withdraw(server: Server, model: str) -> None:
    with redis.Redis.from_url(server.status["broker"]) as client:
        RedisRoster(client).withdraw(model)


def test_one_start_serves_several_base_models(tmp_path: Path, other_model: Path) -> None:
    home, other = tmp_path / "home", str(other_model)
    home.mkdir()
    options = ("--base-model", other, "--alias", f"org/small={other}", "--dtype", "float32", "--no-flower")
    server = Server.start(home, *options)
    try:
        assert served(server) == {"tiny", other, str(resolve("tiny", home)), "org/small"}
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        with ThreadPoolExecutor(2) as pool:
            here, there = pool.map(lambda model: losses_of(service, model), ("tiny", "org/small"))
        assert here[-1] < here[0] and there[-1] < there[0]
        assert there[0] != pytest.approx(here[0], rel=1e-2)
        for model, vocabulary, tokens in (("tiny", 512, 64), (other, 300, 48)):
            sampler = service.create_sampling_client(base_model=model).result()
            params = tinker.SamplingParams(max_tokens=tokens, seed=1, stop=[])
            (sequence,) = sampler.sample(tinker.ModelInput.from_ints([11]), 1, params).result().sequences
            assert len(sequence.tokens) == tokens and max(sequence.tokens) < vocabulary
        work = {"tiny": (64, 10), other: (48, 10)}  #: tokens drawn, verbs trained
        wait_for(f"each worker to have done its own model's work alone: {work}", lambda: done(server) == work)
    finally:
        server.stop()


def done(server: Server) -> dict[str, tuple[int, int]]:
    """Tokens drawn, and batches and optimizer steps carried out, by the worker of each base model."""
    with redis.Redis.from_url(server.status["broker"]) as client:
        workers = [(worker.cards[0].name, worker.use) for worker in RedisRoster(client).workers() if worker.use]
    return {model: (use.sample.tokens, use.train.passes) for model, use in workers}


def test_a_run_on_a_listed_model_waits_for_its_worker_and_is_checked_there(tmp_path: Path, other_model: Path) -> None:
    home, other = tmp_path / "home", str(other_model)
    home.mkdir()
    server = Server.start(home, "--no-flower", "--dtype", "float32", OPENRL_GATEWAY__AWAITED_MODELS=other)
    worker = None
    try:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        with ThreadPoolExecutor(1) as pool:
            losses = pool.submit(losses_of, service, other)
            time.sleep(2.0)
            assert not losses.done()
            worker = start_worker(server, other, other_model.parent / "worker.log", OPENRL_TRAIN__MAX_LORA_RANK="16")
            assert losses.result(90)[-1] < losses.result()[0]
        with redis.Redis.from_url(server.status["broker"]) as client:
            roster = RedisRoster(client)
            worker.terminate()
            worker.wait(60)
            wait_for("the worker to be gone", lambda: other not in {c.name for w in roster.workers() for c in w.cards})
            roster.withdraw(other)
        wait_for("its card to be gone", lambda: other in served(server, bounded=False))
        with ThreadPoolExecutor(1) as pool:
            large = pool.submit(lambda: service.create_lora_training_client(base_model=other, rank=32).result())
            time.sleep(1.0)
            worker = start_worker(server, other, other_model.parent / "worker.log", OPENRL_TRAIN__MAX_LORA_RANK="16")
            with pytest.raises(tinker.RequestFailedError, match=r"rank: is 32; .* takes ranks 1\.\.16"):
                large.result(90)
    finally:
        if worker is not None:
            worker.terminate()
            worker.wait(60)
        server.stop()


def start_worker(server: Server, model: str, log: Path, **settings: str) -> subprocess.Popen[bytes]:
    """A worker of another base model joins."""
    settings |= {
        "OPENRL_REDIS_URL": server.status["broker"],
        "OPENRL_DATA_DIR": str(server.home),
        "OPENRL_BASE_MODEL": model,
        "OPENRL_WORKER__DTYPE": "float32",
    }
    command = [sys.executable, "-m", "openrl.cli.main", "worker", "device"]
    with log.open("ab") as out:
        return subprocess.Popen(command, env=sdk_environment() | settings, stdout=out, stderr=out)
