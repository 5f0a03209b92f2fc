"""The vLLM sample engine: requests go to vLLM's AsyncLLM as they come, on an event loop in a thread of its own.

Knows tokens, and text only through `decode`: no ops, no HTTP, no settings. vLLM computes in processes of its own; where
one of these dies, everything fails with EngineBusy, `died` is called, and nothing is taken any more.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.inputs.engine import tokens_input
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from openrl.domain.errors import Draining, EngineBusy, FieldInvalid
from openrl.domain.sampling import SampleResult, Sequence, StopReason
from workers.sample.request import SampleRequest, check
from workers.sample.results import PromptScores, result
from workers.sample.stopping import Decode, Stopper
from workers.sample.vllm.adapters import Adapters
from workers.sample.vllm.answering import Unfinished, positions, prompt_scores
from workers.sample.vllm.asking import check_served, params
from workers.sample.vllm.facts import Facts
from workers.sample.vllm.places import Places
from workers.sample.vllm.usage import Usage

WATCH_SECONDS = 0.25  #: between looks at whether vLLM is alive
REST_SECONDS = 1.0  #: that a request waits here which came too late, so that it does not come again and again
DIED = "vLLM's engine process ended; the worker starts anew"


class SampleEngine:
    """`start` makes the AsyncLLM and is awaited on the engine's event loop; what it raises, this raises. At most
    `places` samples are in vLLM at once; others wait here for their turn."""

    def __init__(
        self,
        start: Callable[[], Coroutine[Any, Any, Any]],
        *,
        facts: Facts,
        decode: Decode,
        adapters: Adapters,
        places: int,
        died: Callable[[], None] = lambda: None,
    ) -> None:
        self._facts, self._decode, self._adapters, self._died = facts, decode, adapters, died
        self._places, self.usage = Places(places), Usage()
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended: str | None = None  #: why nothing is taken any more
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._llm = self._run(start()).result()
        self._watching = self._run(self._watch())

    # ---------------------------------------------------------------------------------------- for any thread
    def submit(self, request: SampleRequest) -> "Future[SampleResult]":
        """See the port."""
        future: Future[SampleResult]
        try:
            self._check(request)
            if self._loop.is_closed():
                raise Draining
        except (Draining, FieldInvalid) as error:
            future = Future()
            future.set_exception(error)
            return future
        return self._run(self._serve(request))

    def cancel(self, future: "Future[SampleResult]") -> None:
        """See the port."""
        future.cancel()

    def close(self) -> None:
        """See the port."""
        if self._loop.is_closed():
            return
        self._watching.cancel()
        self._run(self._end("it is shutting down")).result()
        if self._llm.output_handler is not None:  # or it would tell that the engine died
            self._loop.call_soon_threadsafe(self._llm.output_handler.cancel)
        self._llm.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._adapters.close()

    # ------------------------------------------------------------------------------------------ for the loop
    def _run(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _watch(self) -> None:
        while not self._llm.errored:
            await asyncio.sleep(WATCH_SECONDS)
        await self._end(DIED)
        self._died()

    async def _end(self, why: str) -> None:
        """Take nothing any more, and fail what is under way."""
        self._ended = self._ended or why
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, request: SampleRequest) -> SampleResult:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        taken = self._alive()
        try:
            if not taken:  # no attempt of the caller's; at once it would come back at once
                await asyncio.sleep(REST_SECONDS)
                raise Draining
            return await self._answer(request)
        except (asyncio.CancelledError, EngineDeadError, EngineGenerateError):
            if self._alive():
                raise  # whoever asked gave it up, or it is a bug
            raise (EngineBusy(self._ended or DIED) if taken else Draining()) from None
        except VLLMValidationError as error:
            raise FieldInvalid("sampling_params", f"vLLM refuses this: {error}") from error
        finally:
            self._tasks.discard(task)

    def _alive(self) -> bool:
        return self._ended is None and not self._llm.errored

    async def _answer(self, request: SampleRequest) -> SampleResult:
        async with self._adapters.held(self._llm, request.policy) as lora:
            count = request.num_samples if request.params.max_tokens else 0
            parts = [self._draw(request, sample, lora) for sample in range(max(count, int(request.scores_prompt)))]
            drawn = await _all(parts)
        sequences = tuple(sequence for sequence, _ in drawn[:count])
        if not request.params.max_tokens:
            sequences = (Unfinished(request.topk_sample_logprobs).sequence(StopReason.LENGTH),) * request.num_samples
        scores = prompt_scores(request, drawn[0][1]) if request.scores_prompt else PromptScores()
        return result(sequences, scores)

    async def _draw(self, request: SampleRequest, sample: int, lora: Any) -> tuple[Sequence, Any]:
        """One sample, and what vLLM tells of the prompt's tokens: the first sample of a request asks for that."""
        stopper = Stopper(request.params, self._facts.eos_token_ids, self._decode)
        asked = params(request, sample, stopper.ends, scoring=request.scores_prompt and not sample)
        drawn, scores, reason = Unfinished(request.topk_sample_logprobs), None, None
        prompt = tokens_input(list(request.prompt))
        answers = self._llm.generate(prompt, asked, f"{next(self._numbers)}", lora_request=lora)
        tokens = request.sample_tokens + (0 if sample else len(request.prompt))
        async with self._places.taken(request, tokens), aclosing(answers):
            with self.usage.drawing():
                async for answer in answers:
                    scores = answer.prompt_logprobs or scores
                    before = len(drawn.tokens)
                    reason = _take(answer.outputs[0], drawn, stopper)
                    self.usage.drew(len(drawn.tokens) - before)
                    if reason is not None:
                        break
        if reason is None:
            raise EngineBusy(f"vLLM gave a request up after {len(drawn.tokens)} tokens")
        return drawn.sequence(reason), scores

    def _check(self, request: SampleRequest) -> None:
        facts = self._facts
        check(request, context_length=facts.context_length, vocab_size=facts.vocab_size)
        check_served(request, facts.context_length)


def _take(output: Any, drawn: Unfinished, stopper: Stopper) -> StopReason | None:
    """Add what came until the sample ends, and why it does; what vLLM drew behind that is left out."""
    if not output.token_ids:
        return None
    for token, position in zip(output.token_ids, positions(output.logprobs, len(output.token_ids)), strict=True):
        drawn.take(token, position)
        reason = stopper(drawn.tokens)
        if reason is not None:
            return reason
    return None


async def _all(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """All results in order. Where one fails, or the caller is cancelled, the others are cancelled and awaited."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
