import re
from pathlib import Path

import pytest
from fakes import MARKS

from openrl.domain.errors import SettingInvalid

pytestmark = MARKS

HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "vllm.md"
#: By row of the how-to's table: what is set, and what vLLM is given.
TABLE = {
    "OPENRL_BASE_MODEL": ("{model}", "{model}"),
    "OPENRL_WORKER__DTYPE": ("float32", "float32"),
    "OPENRL_SAMPLE__MAX_ROWS": ("7", 7),
    "OPENRL_TRAIN__MAX_LORA_RANK": ("9", 16),
    "OPENRL_SAMPLE__VLLM__MEMORY_SHARE": ("0.5", 0.5),
    "OPENRL_SAMPLE__VLLM__TENSOR_PARALLEL": ("2", 2),
    "OPENRL_SAMPLE__VLLM__MAX_MODEL_LEN": ("48", 48),
    "OPENRL_SAMPLE__VLLM__CACHE_GB": ("1.5", 1_500_000_000),
    "OPENRL_SAMPLE__VLLM__MAX_LORAS": ("3", 3),
    "OPENRL_SAMPLE__VLLM__MAX_CPU_LORAS": ("5", 5),
}


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


def test_the_howtos_table_tells_what_settings_become(tmp_path, monkeypatch):
    """Each row that names one argument of vLLM's, and the example of others."""
    from openrl import config
    from openrl.models import tiny
    from workers.sample.vllm.facts import facts_of
    from workers.sample.vllm.launch import engine_args
    from workers.sample.vllm.station import wish_of

    text, folder = HOWTO.read_text(), str(tmp_path)
    tiny.make(tmp_path)
    rows = dict(re.findall(r"^\| `(OPENRL_\w+)` \| `(\w+)` \|", text, re.MULTILINE))
    assert rows.keys() == TABLE.keys()
    example = re.search(r"`OPENRL_SAMPLE__VLLM__EXTRA` \| any other \| [^`]*`(\{.*?\})`", text)
    assert example is not None
    for name, (value, _) in TABLE.items():
        monkeypatch.setenv(name, value.format(model=folder))
    monkeypatch.setenv("OPENRL_SAMPLE__VLLM__EXTRA", example[1])
    settings = config.load()
    args = engine_args(wish_of(folder, facts_of(folder, settings.sample.vllm.max_model_len), settings))
    for name, (_, wanted) in TABLE.items():
        assert getattr(args, rows[name]) == (folder if name == "OPENRL_BASE_MODEL" else wanted), name
    assert args.kv_cache_dtype == "fp8"


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
