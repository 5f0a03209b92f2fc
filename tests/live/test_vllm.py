"""A vLLM sample worker in an environment of its own beside a server and a train worker in this one, driven by the real
SDK; also while vLLM's engine process is killed. `make vllm` tells where that environment is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
import tinker
from living import Server, sdk_environment, wait_for
from loops import greedy, sft_datum, train

from openrl.ledger.roster import RedisRoster
from openrl.models import tiny

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("SAMPLER_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python"))
START_SECONDS = 240.0
HELD_SECONDS = 10.0  #: the ledger's, after which a dead worker's operations are anybody's
BROKEN = 70

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like tiny, with heads as wide as vLLM's CPU build asks for."""
    from transformers import LlamaConfig, LlamaForCausalLM, set_seed

    folder = tmp_path_factory.mktemp("wide")
    tiny.tokenizer().save_pretrained(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "max_position_embeddings": 2048}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    set_seed(1)
    config = LlamaConfig(vocab_size=tiny.VOCAB_SIZE, **sizes, **heads, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


class Workers:
    """A train worker of the model here, and sample workers with vLLM there."""

    def __init__(self, server: Server, model: Path) -> None:
        self.server, self.model = server, model
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, role: str, python: str, **settings: str) -> subprocess.Popen[bytes]:
        settings |= {
            "OPENRL_REDIS_URL": self.server.status["broker"],
            "OPENRL_DATA_DIR": str(self.server.home),
            "OPENRL_BASE_MODEL": str(self.model),
            "OPENRL_WORKER__DTYPE": "float32",
            "PYTHONPATH": str(ROOT),
        }
        command = [python, "-m", "openrl.cli.main", "worker", role]
        with (self.server.home / f"{role}-vllm-test.log").open("ab") as log:
            worker = subprocess.Popen(command, env=sdk_environment() | settings, stdout=log, stderr=log)
        self.started.append(worker)
        wait_for(f"the {role} worker", lambda: self.announced(worker), START_SECONDS)
        return worker

    def start_vllm(self) -> subprocess.Popen[bytes]:
        return self.start(
            "sample",
            PYTHON,
            OPENRL_SAMPLE__ENGINE="vllm",
            OPENRL_SAMPLE__VLLM__CACHE_GB="0.3",
            OPENRL_SAMPLE__VLLM__MAX_LORAS="2",
            OPENRL_SAMPLE__VLLM__MAX_CPU_LORAS="3",
            OPENRL_TRAIN__MAX_LORA_RANK="8",
            OPENRL_WORKER__THREADS="1",
        )

    def announced(self, worker: subprocess.Popen[bytes]) -> bool:
        assert worker.poll() is None, self.log("sample")
        with redis.Redis.from_url(self.server.status["broker"]) as client:
            return worker.pid in {each.pid for each in RedisRoster(client).workers()}

    def log(self, role: str) -> str:
        return (self.server.home / f"{role}-vllm-test.log").read_text()[-4000:]

    def stop(self) -> None:
        for worker in self.started:
            worker.terminate()
        for worker in self.started:
            worker.wait(60)


def engine_processes(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """vLLM's own, below a worker."""
    return psutil.Process(worker.pid).children(recursive=True)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Workers]:
    assert Path(PYTHON).exists(), f"there is no {PYTHON}; run `make vllm`, or set SAMPLER_PYTHON"
    server = Server.start(tmp_path_factory.mktemp("vllm"), "--dtype", "float32", "--no-flower")
    workers = Workers(server, model)
    try:
        workers.start("train", sys.executable, OPENRL_TRAIN__MAX_LORA_RANK="8")
        yield workers
    finally:
        workers.stop()
        server.stop()


def test_base_and_adapters_are_sampled_and_a_killed_engine_is_not_noticed(workers: Workers) -> None:
    first = workers.start_vllm()
    service = tinker.ServiceClient(base_url=workers.server.url, api_key=workers.server.api_key)
    name = str(workers.model)
    base = service.create_sampling_client(base_model=name).result()
    client = service.create_lora_training_client(base_model=name, rank=8, seed=1).result()
    train(client, steps=25, target=[101, 202, 303])
    sampler = client.save_weights_and_get_sampling_client().result()
    assert greedy(sampler) != greedy(base)
    loss = client.forward([sft_datum()], "cross_entropy").result().metrics["loss:sum"]
    scored = sampler.compute_logprobs(tinker.ModelInput.from_ints([11, 12, 13, 14, 101, 202, 303])).result()
    assert scored[0] is None
    assert -sum(value for value in scored[4:] if value is not None) == pytest.approx(loss, abs=1e-3), "the trained run"

    prompt = tinker.ModelInput.from_ints([11, 12, 13])
    params = tinker.SamplingParams(max_tokens=1500, temperature=1.0, seed=5, stop=[])
    asked = [each.sample(prompt, 2, params) for each in (base, sampler)]
    with redis.Redis.from_url(workers.server.status["broker"]) as broker:
        wait_for("both to be under way", lambda: broker.zcard("openrl:held") == 2)
    killed_at = time.monotonic()
    family = engine_processes(first)
    engine = next(each for each in family if each.parent() == psutil.Process(first.pid) and each.children())
    engine.send_signal(signal.SIGKILL)
    assert first.wait(30) == BROKEN, workers.log("sample")
    print(f"the worker of a killed engine exited after {time.monotonic() - killed_at:.1f} s")
    wait_for("vLLM's processes to be gone", lambda: not any(map(psutil.Process.is_running, family)))

    second = workers.start_vllm()
    answers = [each.result(HELD_SECONDS + 120) for each in asked]
    assert [len(sequence.tokens) for answer in answers for sequence in answer.sequences] == [1500] * 4
    again = [each.sample(prompt, 2, params).result(120) for each in (base, sampler)]
    assert [s.tokens for answer in again for s in answer.sequences] == [
        s.tokens for answer in answers for s in answer.sequences
    ], "the same seeds, the same tokens"
    second.terminate()
    assert second.wait(60) == 0, workers.log("sample")
