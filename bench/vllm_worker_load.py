"""One side of the sampling bench, in an environment with vLLM: what a vLLM sample worker makes of it, or vLLM alone.

`worker` is this project's engine with the arguments that such a worker starts it with, and fed from another thread as
there. `bare` is vLLM's AsyncLLM with the same arguments in the same environment, without this project's changes to its
sampler. Both load the same adapters. They are told asks as `sample_load.py` is and answer alike.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
import vllm_load
from asks import Arrivals, Ask, from_plain
from lines import keep_stdout, tell, told
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from vllm.lora.request import LoRARequest

from openrl.config import Sample, Settings, Train, Vllm, Worker
from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SamplingParams
from workers.model.adapter_files import to_files
from workers.model.layout import Group, LoraShape, ModelLayout, Target
from workers.sample.request import SampleRequest
from workers.sample.vllm.adapters import Adapters
from workers.sample.vllm.engine import SampleEngine
from workers.sample.vllm.facts import Facts, facts_of
from workers.sample.vllm.launch import Wish, engine_args, prepare, start
from workers.sample.vllm.station import wish_of

CONTEXT = 1024  #: longest row
CACHE_GB = 2


def wish(options: argparse.Namespace, facts: Facts) -> Wish:
    """What a worker's settings come to."""
    settings = Settings(
        base_model=options.model,
        worker=Worker(device="cpu", dtype=options.dtype, threads=options.threads),
        sample=Sample(vllm=Vllm(cache_gb=CACHE_GB, max_model_len=CONTEXT)),
        train=Train(max_lora_rank=options.rank),
    )
    return wish_of(options.model, facts, settings)


def adapters(options: argparse.Namespace) -> list[dict[str, bytes]]:
    """Files of random ones, on all linear layers but the head."""
    with torch.device("meta"):
        module: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(options.model))
    layout = ModelLayout(
        tuple(
            Target(name, each.in_features, each.out_features, Group.MLP)
            for name, each in module.named_modules()
            if isinstance(each, nn.Linear) and each is not module.get_output_embeddings()
        )
    )
    shape = LoraShape(layout, options.rank, layout.by_name)
    return [to_files(shape, torch.randn(shape.size) * 0.01, options.model) for _ in range(options.policies)]


def serve(engine: SampleEngine, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
    """How many tokens came out, and how long each ask took, in seconds from its arrival."""
    arrivals, ended, drawn = Arrivals(some, in_flight), [0.0] * len(some), 0
    started, running = time.perf_counter(), dict[Future[Any], int]()
    while arrivals.next() is not None or running:
        for index, ask in arrivals.due(time.perf_counter() - started, len(running)):
            running[engine.submit(_request(ask))] = index
        pause = None if arrivals.next() is None or in_flight is not None else vllm_load.NAP_SECONDS
        for future in wait(running, timeout=pause, return_when=FIRST_COMPLETED).done:
            ended[running.pop(future)] = time.perf_counter() - started
            drawn += sum(sequence.tokens.shape[0] for sequence in future.result().sequences)
    return drawn, [end - came for end, came in zip(ended, arrivals.came, strict=True)]


def _request(ask: Ask) -> SampleRequest:
    params = SamplingParams(max_tokens=ask.max_tokens, stop_at_eos=False)
    policy = None if ask.policy is None else DepotKey(str(ask.policy))
    return SampleRequest(prompt=ask.prompt, params=params, policy=policy)


def worker(options: argparse.Namespace, folder: Path) -> None:
    facts, files = facts_of(options.model, CONTEXT), adapters(options)
    wanted = wish(options, facts)
    held = Adapters(folder, fetch=lambda key: files[int(key)], targets=facts.targets, limit=wanted.max_cpu_loras)
    engine = SampleEngine(lambda: start(wanted), facts=facts, decode=str, adapters=held, places=wanted.places)
    with closing(engine):
        for few in vllm_load.warming(facts.vocab_size, options.policies):
            serve(engine, few, None)
        tell("ready")
        for asked in told():
            with vllm_load.timed() as times:
                drawn, waits = serve(engine, from_plain(asked["asks"]), asked["in_flight"])
            tell("served", **times, tokens=drawn, waits=waits)


def bare(options: argparse.Namespace, folder: Path) -> None:
    wanted = wish(options, facts_of(options.model, CONTEXT))
    prepare(wanted)
    arguments = engine_args(wanted)
    arguments.worker_extension_cls = ""
    asyncio.run(vllm_load.run(arguments, list(_written(adapters(options), folder))))


def _written(some: Sequence[dict[str, bytes]], folder: Path) -> Iterator[LoRARequest]:
    for number, files in enumerate(some, 1):
        place = folder / str(number)
        place.mkdir()
        for name, data in files.items():
            (place / name).write_bytes(data)
        yield LoRARequest(lora_name=str(number), lora_int_id=number, lora_path=str(place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=["worker", "bare"], required=True)
    parser.add_argument("--model", required=True, help="folder")
    parser.add_argument("--dtype", required=True, help="float32 or bfloat16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--policies", type=int, default=0, help="adapters to have ready (default %(default)s)")
    parser.add_argument("--rank", type=int, default=16, help="of each (default %(default)s)")
    options = parser.parse_args()
    keep_stdout()
    with tempfile.TemporaryDirectory(prefix="openrl-adapters-") as place:
        {"worker": worker, "bare": bare}[options.side](options, Path(place))


if __name__ == "__main__":
    main()
