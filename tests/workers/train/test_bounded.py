"""A process whose address space really ends in the middle of a pass."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from array import array
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from openrl.domain.datum import Datum, Loss
from openrl.domain.outcome import BatchResult
from openrl.domain.run import LoraSpec
from openrl.domain.tensor import DType, Tensor
from workers.model.base import BaseModel
from workers.train.engine import Batch, TrainEngine

torch.set_num_threads(1)
torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=500, hidden_size=128, intermediate_size=512, num_hidden_layers=6, num_attention_heads=4
)
base = BaseModel(LlamaForCausalLM(config), "small")


def datum(length, seed):
    tokens = torch.randint(0, 500, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    ints = Tensor(dtype=DType.INT32, shape=(length,), data=array("i", tokens).tobytes())
    ones = Tensor(dtype=DType.FLOAT32, shape=(length,), data=array("f", [1.0] * length).tobytes())
    return Datum(tokens=ints, inputs={"target_tokens": ints, "weights": ones})


def gradient(rows):
    engine = TrainEngine(base, memory_bytes=10**12)
    for run in ("a", "b"):
        engine.create(run, LoraSpec(rank=8, seed=2))
    batches = [
        Batch(run_id=run, loss=Loss.CROSS_ENTROPY, data=[datum(256, 100 * first + row) for row in range(rows)])
        for first, run in enumerate(("a", "b"))
    ]
    results = engine.forward_backward(batches)
    assert all(isinstance(each, BatchResult) for each in results), results
    return torch.cat([engine.run(run).grad for run in ("a", "b")]), engine.memory.counts


wanted, counts = gradient(8)
assert counts.exhausted == 0
pages = int(Path("/proc/self/statm").read_text().split()[0])
held = pages * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 120 * 2**20, resource.RLIM_INFINITY))
found, counts = gradient(8)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(counts, float((found - wanted).abs().max() / wanted.abs().max()))
assert counts.exhausted > 0, "the bound never bit"
assert float((found - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())
"""


@pytest.mark.live
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and bounds the address space")
def test_the_engine_outlives_the_end_of_its_address_space() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
