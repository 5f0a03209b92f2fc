"""One side of the sampling bench: vLLM alone, by its asynchronous engine; needs only the `vllm` package and its needs.

It is told asks as `sample_load.py` is and answers alike. Nothing ends a completion early, text is not made, and
prompts are new each time, so that its prefix cache finds nothing.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import psutil
from asks import Arrivals, Ask, asks, from_plain, over_policies
from lines import keep_stdout, tell, told

NAP_SECONDS = 0.001


class VLLM:
    """Asks for log-probabilities of what it draws where it `tells`; `loras` are vLLM's requests for the policies."""

    def __init__(self, engine: Any, loras: Sequence[Any] = ()) -> None:
        self._engine, self._loras, self._names = engine, loras, count()
        self.tells = False

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
            logprobs=0 if self.tells else None,
            flat_logprobs=self.tells,
        )
        drawn = 0
        lora = None if ask.policy is None else self._loras[ask.policy]
        async for output in self._engine.generate(
            {"prompt_token_ids": list(ask.prompt)}, params, request_id=str(next(self._names)), lora_request=lora
        ):
            drawn = len(output.outputs[0].token_ids)
        return drawn


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Filled behind the block with what it took: `seconds`, and `cpu_seconds` of this process and all below it."""
    times: dict[str, float] = {}
    before, started = _cpu_seconds(), time.perf_counter()
    yield times
    times["seconds"] = time.perf_counter() - started
    times["cpu_seconds"] = _cpu_seconds() - before


def _cpu_seconds() -> float:
    me = psutil.Process()
    return sum(each.cpu_times().user + each.cpu_times().system for each in (me, *me.children(recursive=True)))


def warming(vocab: int, policies: int) -> Iterator[list[Ask]]:
    """What to serve first, so that everything has been done once and each adapter is loaded."""
    yield asks(4, vocab, round_=-1)
    yield over_policies(asks(1 + policies, vocab, round_=-2), policies)


async def run(arguments: Any, loras: Sequence[Any] = ()) -> None:
    """Start vLLM so, and serve what is asked for."""
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(arguments)
    try:
        side, vocab = VLLM(engine, loras), engine.model_config.get_vocab_size()
        for few in warming(vocab, len(loras)):
            await side.serve(few, None)
        tell("ready")
        for asked in told():
            side.tells = asked["tells"]
            with timed() as times:
                drawn, waits = await side.serve(from_plain(asked["asks"]), asked["in_flight"])
            tell("served", **times, tokens=drawn, waits=waits)
    finally:
        engine.shutdown()


def arguments_of(options: argparse.Namespace) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    return AsyncEngineArgs(
        model=options.model,
        dtype=options.dtype,
        max_model_len=options.context,
        disable_log_stats=True,
        **json.loads(options.engine),
    )


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
    asyncio.run(run(arguments_of(options)))


if __name__ == "__main__":
    main()
