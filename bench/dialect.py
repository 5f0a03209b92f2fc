"""The SDK's calls in the same words for its versions from 0.23 on. It knows the SDK and nothing of any server.

Loads are scripts of their own beside this file, so that each server can be driven by an environment with the SDK that
it speaks. They tell what happens in `lines`.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tinker
from tinker import types

#: Calls that block in older versions, one for each job at least.
THREADS = 64


def many_threads() -> None:
    """For the running event loop; its default is a few threads more than there are cores."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))


async def settled(answer: Any) -> Any:
    """What a call comes to: newer versions answer an awaitable, older ones a future or the thing itself."""
    if inspect.isawaitable(answer):
        return await answer
    return await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer


async def blocking(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The same for a call that older versions block in."""
    return await settled(await asyncio.to_thread(call, *args, **options))


async def training(service: tinker.ServiceClient, model: str, rank: int, *, unembed: bool = False) -> Any:
    return await blocking(service.create_lora_training_client, model, rank=rank, seed=0, train_unembed=unembed)


async def newest(trainer: Any) -> Any:
    """A sampling client of the weights as they are."""
    return await blocking(trainer.save_weights_and_get_sampling_client)


async def sampled(sampler: Any, prompt: Sequence[int], count: int, max_tokens: int) -> Any:
    """`count` completions of exactly `max_tokens` tokens: with an empty list of stops nothing ends one early. A server
    that ends at the end-of-sequence token all the same has to fill up to the longest of the completions."""
    params = types.SamplingParams(max_tokens=max_tokens, temperature=1.0, stop=[])
    return await settled(sampler.sample(types.ModelInput.from_ints(list(prompt)), count, params))


async def closed(service: tinker.ServiceClient) -> None:
    """Ends the session, where the SDK has a word for it."""
    if hasattr(service, "close"):
        await settled(service.close("success"))
