"""Clients that make runs and leave, or one that counts round trips; needs only the `tinker` SDK, 0.23 or newer.

`leave` makes `--runs` runs, a few clients at a time. Each run takes one step and one sample of the newest weights.
Every other client closes its session; the rest go away without a word when the process kills itself at the end. `trips`
makes one run and times, one at a time, a small `forward_backward`, an `optim_step`, a sampling client of the newest
weights and a sample of one token. The key is taken from TINKER_API_KEY.
"""

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Awaitable
from statistics import median
from typing import Any

import tinker
from dialect import blocking, closed, many_threads, newest, sampled, settled, training
from lines import tell
from tinker import types

TOKENS = [17, 23, 42, 99, 123, 7, 300, 256]
WARM_UP = 10  #: rounds not measured
RUNS_OF_A_CLIENT = 10
CLIENTS_AT_ONCE = 4


class Visit:
    """One run of a client, and the four round trips."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._sampler = trainer, None

    async def forward_backward(self) -> None:
        inputs = types.ModelInput.from_ints(TOKENS)
        targets: dict[str, Any] = {"target_tokens": [*TOKENS[1:], TOKENS[0]], "weights": [1.0] * len(TOKENS)}
        datum = types.Datum(model_input=inputs, loss_fn_inputs=targets)
        await settled(self._trainer.forward_backward([datum], "cross_entropy"))

    async def optim_step(self) -> None:
        await settled(self._trainer.optim_step(types.AdamParams(learning_rate=1e-4)))

    async def save(self) -> None:
        self._sampler = await newest(self._trainer)

    async def sample(self) -> None:
        await sampled(self._sampler, TOKENS, 1, 1)

    async def round(self) -> dict[str, float]:
        """Seconds of each."""
        return {
            "forward_backward": await seconds(self.forward_backward()),
            "optim_step": await seconds(self.optim_step()),
            "save": await seconds(self.save()),
            "sample": await seconds(self.sample()),
        }


async def seconds(work: Awaitable[None]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def trips(options: argparse.Namespace) -> None:
    service = await blocking(tinker.ServiceClient, base_url=options.base_url)
    visit = Visit(await training(service, options.model, options.rank))
    rounds = []
    tell("ready", steps=WARM_UP + options.rounds)
    for number in range(WARM_UP + options.rounds):
        took = await visit.round()
        tell("step")
        if number >= WARM_UP:
            rounds.append(took)
    figures = {name: median(took[name] for took in rounds) * 1e3 for name in rounds[0]}
    tell("done", sdk=tinker.__version__, figures=figures)
    await closed(service)


async def leave(options: argparse.Namespace) -> None:
    """Never returns."""
    places = asyncio.Semaphore(CLIENTS_AT_ONCE)

    async def client(number: int, runs: int) -> tinker.ServiceClient:
        async with places:
            service: tinker.ServiceClient = await blocking(tinker.ServiceClient, base_url=options.base_url)
            for _ in range(runs):
                await Visit(await training(service, options.model, options.rank)).round()
                tell("step")
            if number % 2:
                await closed(service)
            return service

    whole, rest = divmod(options.runs, RUNS_OF_A_CLIENT)
    sizes = [RUNS_OF_A_CLIENT] * whole + [rest] * (rest > 0)
    silent = await asyncio.gather(*(client(number, runs) for number, runs in enumerate(sizes)))
    tell("done", clients=len(silent))
    os.kill(os.getpid(), signal.SIGKILL)


async def run(options: argparse.Namespace) -> None:
    many_threads()
    await {"trips": trips, "leave": leave}[options.what](options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("trips", "leave"))
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True, help="the base model's name there")
    parser.add_argument("--rank", type=int, default=8, help="of the adapters (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="measured (default %(default)s)")
    parser.add_argument("--runs", type=int, default=10, help="left (default %(default)s)")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
