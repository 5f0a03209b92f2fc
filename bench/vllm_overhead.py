"""What does our engine around vLLM cost?

The same requests go to vLLM's AsyncLLM directly and through the engine, in one process, by turns. Run it in an
environment with vLLM: `PYTHONPATH=. .venv-vllm/bin/python bench/vllm_overhead.py MODEL`.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openrl.domain.sampling import SamplingParams
from workers.sample.request import SampleRequest

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder or a hub id")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    engine, llm, loop = start(asked.model, asked.threads)
    prompts = [[10 + (7 * row + at) % 400 for at in range(32)] for row in range(asked.requests)]
    ways: dict[str, Callable[[], None]] = {
        "direct": lambda: asyncio.run_coroutine_threadsafe(direct(llm, prompts, asked.tokens), loop).result(),
        "engine": lambda: through(engine, prompts, asked.tokens, None),
        "engine, seeded": lambda: through(engine, prompts, asked.tokens, 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if turn:  # the first warms up
                seconds[name].append(time.perf_counter() - began)
    for name, found in seconds.items():
        middle, spread = statistics.median(found), f"{min(found):.2f}-{max(found):.2f}"
        print(f"{name}: {middle:.2f} s ({spread}), {len(prompts) * asked.tokens / middle:.0f} tok/s")
    engine.close()


def start(model: str, threads: int) -> tuple[Any, Any, Any]:
    """Our engine, and the AsyncLLM and event loop in it."""
    from workers.sample.vllm.adapters import Adapters
    from workers.sample.vllm.engine import SampleEngine
    from workers.sample.vllm.facts import facts_of
    from workers.sample.vllm.launch import Wish
    from workers.sample.vllm.launch import start as start_vllm

    facts = facts_of(model)
    wish = Wish(
        source=model,
        dtype="bfloat16",
        context_length=512,
        max_rows=64,
        max_lora_rank=8,
        max_loras=2,
        max_cpu_loras=2,
        targets=facts.targets,
        cache_bytes=1 << 30,
        threads=threads,
        on_cpu=True,
    )
    adapters = Adapters(Path(tempfile.mkdtemp()), fetch=lambda key: {}, targets=facts.targets, limit=2)
    engine = SampleEngine(lambda: start_vllm(wish), facts=facts, decode=str, adapters=adapters, places=256)
    return engine, engine._llm, engine._loop


async def direct(llm: Any, prompts: list[list[int]], tokens: int) -> None:
    from vllm import SamplingParams as Params
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind

    async def one(number: int, prompt: list[int]) -> None:
        kind = RequestOutputKind.FINAL_ONLY
        params = Params(max_tokens=tokens, ignore_eos=True, logprobs=0, detokenize=False, output_kind=kind)
        async for _ in llm.generate(tokens_input(prompt), params, f"direct-{time.perf_counter_ns()}-{number}"):
            pass

    await asyncio.gather(*[one(number, prompt) for number, prompt in enumerate(prompts)])


def through(engine: Any, prompts: list[list[int]], tokens: int, seed: int | None) -> None:
    params = SamplingParams(max_tokens=tokens, seed=seed, stop_at_eos=False)
    futures = [engine.submit(SampleRequest(prompt=tuple(prompt), params=params)) for prompt in prompts]
    for future in futures:
        future.result()


if __name__ == "__main__":
    main()
