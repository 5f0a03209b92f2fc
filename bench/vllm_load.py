"""One side of the sampling bench: vLLM alone, by its asynchronous engine; needs only the `vllm` package.

It is told asks as `sample_load.py` is and answers alike. Nothing ends a completion early, text is not made, and
prompts are new each time, so that its prefix cache finds nothing.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from asks import Arrivals, Ask, asks, from_plain
from lines import keep_stdout, tell, told

NAP_SECONDS = 0.001


class VLLM:
    def __init__(self, engine: Any) -> None:
        self._engine, self._names = engine, count()

    async def serve(self, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
        """How many tokens came out, and how long each ask took, in seconds from its arrival."""
        arrivals, ended, drawn = Arrivals(some, in_flight), [0.0] * len(some), [0] * len(some)
        started, running = time.perf_counter(), set[asyncio.Task[None]]()

        async def finish(index: int, ask: Ask) -> None:
            drawn[index] = await self._tokens(ask)
            ended[index] = time.perf_counter() - started

        while arrivals.next() is not None or running:
            for index, ask in arrivals.due(time.perf_counter() - started, len(running)):
                running.add(asyncio.create_task(finish(index, ask)))
            if running:
                pause = None if arrivals.next() is None or in_flight is not None else NAP_SECONDS
                done, running = await asyncio.wait(running, timeout=pause, return_when="FIRST_COMPLETED")
                for task in done:
                    task.result()
            else:
                await asyncio.sleep(NAP_SECONDS)
        return sum(drawn), [end - came for end, came in zip(ended, arrivals.came, strict=True)]

    async def _tokens(self, ask: Ask) -> int:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            max_tokens=ask.max_tokens,
            temperature=1.0,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        drawn = 0
        async for output in self._engine.generate(
            {"prompt_token_ids": list(ask.prompt)}, params, request_id=str(next(self._names))
        ):
            drawn = len(output.outputs[0].token_ids)
        return drawn


async def run(options: argparse.Namespace) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=options.model,
        dtype=options.dtype,
        max_model_len=options.context,
        disable_log_stats=True,
        **json.loads(options.engine),
    )
    engine = AsyncLLM.from_engine_args(arguments)
    try:
        side, vocab = VLLM(engine), engine.model_config.get_vocab_size()
        await side.serve(asks(4, vocab, round_=-1), None)
        tell("ready")
        for asked in told():
            started = time.perf_counter()
            drawn, waits = await side.serve(from_plain(asked["asks"]), asked["in_flight"])
            tell("served", seconds=time.perf_counter() - started, tokens=drawn, waits=waits)
    finally:
        engine.shutdown()


def set_threads(count_: int) -> None:
    """Before vLLM is imported: its threads on the first cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))[:count_]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    os.environ["OMP_NUM_THREADS"] = str(count_)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder")
    parser.add_argument("--dtype", required=True, help="float32 or bfloat16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, default=1024, help="longest row (default %(default)s)")
    parser.add_argument("--engine", default="{}", help="more engine arguments, as JSON")
    options = parser.parse_args()
    keep_stdout()
    set_threads(options.threads)
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
