"""Starts vLLM for sampling with many adapters. Knows numbers, no settings object."""

import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from vllm import AsyncEngineArgs
from vllm.config.lora import MaxLoRARanks
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from openrl.domain.errors import ModelUnsupported, SettingInvalid
from workers.sample.vllm.sampler import EXTENSION

#: Of vLLM's processes, unless the environment says otherwise. The sampler's change is for the first model runner.
ENVIRONMENT = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # this process has threads
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
#: Arguments that cannot be given beside the settings: they would change what samples mean.
OURS = frozenset(
    {
        "model", "tokenizer", "skip_tokenizer_init", "generation_config", "logprobs_mode", "max_logprobs",
        "worker_extension_cls", "speculative_config", "enable_lora", "lora_target_modules", "runner", "max_model_len",
        "logits_processors", "data_parallel_size",
    }
)  # fmt: skip
LINED_UP = 8  #: one more sample in vLLM for so many that it draws at once, to begin in the step after one ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How vLLM is to run."""

    source: str
    dtype: str  #: as vLLM names it
    context_length: int
    max_rows: int
    max_lora_rank: int
    max_loras: int  #: adapters in one step
    max_cpu_loras: int  #: adapters in main memory
    targets: tuple[str, ...]  #: last parts of the names of the layers that carry LoRA
    tensor_parallel: int = 1
    memory_share: float = 0.9  #: of a GPU
    cache_bytes: int = 0  #: key/value cache; 0 lets vLLM choose
    threads: int = 0  #: on the CPU; 0 lets vLLM choose, and bind them to cores
    on_cpu: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)  #: further engine arguments

    @property
    def places(self) -> int:
        """Samples to have in vLLM at once."""
        return self.max_rows + max(1, self.max_rows // LINED_UP)


def engine_args(wish: Wish) -> AsyncEngineArgs:
    """Raises SettingInvalid for extra arguments that are unknown or not the operator's to choose."""
    for name in wish.extra:
        if name in OURS or (name == "enforce_eager" and wish.on_cpu):
            raise SettingInvalid("OPENRL_SAMPLE__VLLM__EXTRA", f"{name} cannot be changed here")
    mine: dict[str, Any] = {
        "model": wish.source,
        "dtype": wish.dtype,
        "max_model_len": wish.context_length,
        "max_num_seqs": wish.max_rows,
        "tensor_parallel_size": wish.tensor_parallel,
        "gpu_memory_utilization": wish.memory_share,
        "kv_cache_memory_bytes": wish.cache_bytes or None,
        "enable_prefix_caching": True,
        "enable_lora": True,
        "max_loras": wish.max_loras,
        "max_cpu_loras": max(wish.max_loras, wish.max_cpu_loras),
        "max_lora_rank": rank_taken(wish.max_lora_rank),
        "lora_target_modules": list(wish.targets),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "logprobs_mode": "raw_logprobs",
        "max_logprobs": -1,
        "worker_extension_cls": EXTENSION,
        "seed": secrets.randbits(31),  # vLLM's own is 0: all workers would draw the same
        "enforce_eager": wish.on_cpu,  # compiled code would not see the zero place of adapters: see sampler.py
        "disable_log_stats": True,
        "enable_log_requests": False,
    }
    try:
        return AsyncEngineArgs(**{**mine, **wish.extra})
    except TypeError as error:
        raise SettingInvalid("OPENRL_SAMPLE__VLLM__EXTRA", str(error)) from error


def rank_taken(rank: int) -> int:
    """The smallest bound on ranks that vLLM offers and that lets `rank` in. Raises SettingInvalid."""
    offered = sorted(get_args(MaxLoRARanks))
    fitting = [each for each in offered if each >= rank]
    if not fitting:
        raise SettingInvalid("OPENRL_TRAIN__MAX_LORA_RANK", f"is {rank}; vLLM takes adapters up to {max(offered)}")
    return int(fitting[0])


def prepare(wish: Wish) -> None:
    """Set what vLLM's processes read from the environment."""
    bound = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(wish.threads)} if wish.threads else {}
    for name, value in (ENVIRONMENT | bound).items():
        os.environ.setdefault(name, value)


async def start(wish: Wish) -> AsyncLLM:
    """A running engine whose log-probabilities are those of samples. Raises OperatorError."""
    prepare(wish)
    args = engine_args(wish)
    try:
        llm = AsyncLLM.from_engine_args(args)
    except (ValueError, RuntimeError, OSError) as error:
        raise ModelUnsupported(wish.source, f"vLLM does not start: {error}") from error
    try:
        for problem in await llm.collective_rpc("openrl_change"):
            if problem:
                raise ModelUnsupported(wish.source, f"this version of vLLM is not known: {problem}")
        await _prove(llm, wish.source)
    except BaseException:
        llm.shutdown()
        raise
    return llm


async def _prove(llm: AsyncLLM, source: str) -> None:
    """Where only the likeliest token may be drawn, the next one must have a log-probability all the same, and what lies
    between the two must shrink as the temperature grows."""
    cold, hot = 0.5, 2.0
    gaps = [(likeliest - second) * t for t in (cold, hot) for likeliest, second in [await _first(llm, t)]]
    if not (all(map(math.isfinite, gaps)) and math.isclose(*gaps, rel_tol=0.05, abs_tol=0.05)):
        raise ModelUnsupported(source, f"this version of vLLM tells log-probabilities that are not a sample's: {gaps}")


async def _first(llm: AsyncLLM, temperature: float) -> tuple[float, float]:
    """Log-probabilities of the two likeliest tokens after token 1, where top-k leaves one."""
    asked = SamplingParams(
        max_tokens=1,
        temperature=temperature,
        top_k=1,
        logprobs=2,
        detokenize=False,
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    async for answer in llm.generate(tokens_input([1]), asked, f"prove-{temperature}"):
        logprobs: Any = answer.outputs[0].logprobs
        return logprobs.logprobs[1], logprobs.logprobs[2]
    raise ModelUnsupported("vllm", "it answers nothing")
