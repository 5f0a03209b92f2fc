import subprocess
import sys

import pytest
from fakes import MARKS

from openrl.domain.errors import SettingInvalid

pytestmark = MARKS


def wish(**changes):
    from workers.sample.vllm.launch import Wish

    known = {"source": "m", "dtype": "float32", "context_length": 64, "max_rows": 4, "max_lora_rank": 8}
    return Wish(**known | {"max_loras": 2, "max_cpu_loras": 1, "targets": ("q_proj",)} | changes)


def test_settings_become_vllms_arguments():
    from workers.sample.vllm.launch import engine_args

    args = engine_args(wish(extra={"block_size": 32}, tensor_parallel=2, cache_bytes=5, max_lora_rank=33))
    assert (args.block_size, args.tensor_parallel_size, args.kv_cache_memory_bytes) == (32, 2, 5)
    assert (args.max_lora_rank, args.max_cpu_loras, args.enforce_eager) == (64, 2, False)
    assert args.seed != engine_args(wish()).seed, "two workers do not draw the same"


@pytest.mark.parametrize("name", ["logprobs_mode", "speculative_config", "model", "nonsense"])
def test_arguments_that_are_not_the_operators_are_refused(name):
    from workers.sample.vllm.launch import engine_args

    with pytest.raises(SettingInvalid, match=name):
        engine_args(wish(extra={name: "x"}))


def test_a_cpu_never_runs_compiled_code():
    from workers.sample.vllm.launch import engine_args

    assert engine_args(wish(on_cpu=True)).enforce_eager
    with pytest.raises(SettingInvalid, match="enforce_eager"):
        engine_args(wish(on_cpu=True, extra={"enforce_eager": False}))


def test_a_rank_that_vllm_does_not_offer_is_refused():
    from workers.sample.vllm.launch import rank_taken

    assert [rank_taken(rank) for rank in (1, 7, 8, 9, 256)] == [1, 8, 8, 16, 256]
    with pytest.raises(SettingInvalid, match="OPENRL_TRAIN__MAX_LORA_RANK"):
        rank_taken(1000)


def test_a_vllm_worker_does_without_the_engines_on_torch():
    code = "import sys, workers.sample.vllm.station as s; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "workers.sample.vllm.engine" in modules
    assert not {"workers.model.base", "workers.sample.torch.engine", "workers.train.engine"} & set(modules)
