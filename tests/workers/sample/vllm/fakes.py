"""The vLLM engine with something in vLLM's place that answers what a test wants. vLLM itself must be installed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SamplingParams
from workers.sample.request import SampleRequest

#: Of all tests that import vLLM, which warns of a good deal.
MARKS = [pytest.mark.vllm, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]


@dataclass
class FakeVllm:
    """Answers each request with 1, 2, 3, …, all at once or `apart`; keeps what it was asked."""

    apart: int = 1  #: tokens in an answer
    hangs: bool = False
    errored: bool = False
    refuses: Exception | None = None  #: an adapter
    asked: list[Any] = field(default_factory=list)
    aborted: int = 0
    added: list[str] = field(default_factory=list)
    output_handler: None = None

    async def generate(self, prompt: Any, params: Any, name: str, lora_request: Any = None) -> AsyncIterator[Any]:
        self.asked.append(params)
        try:
            while self.hangs:
                await asyncio.sleep(0.01)
            for start in range(1, params.max_tokens + 1, self.apart):
                tokens = list(range(start, min(start + self.apart, params.max_tokens + 1)))
                yield answer(tokens)
                await asyncio.sleep(0)
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted += 1
            raise

    async def add_lora(self, request: Any) -> bool:
        if self.refuses is not None:
            raise self.refuses
        assert sorted(each.name for each in Path(request.lora_path).iterdir()) == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        self.added.append(request.lora_name)
        return True

    def shutdown(self) -> None:
        pass


def answer(tokens: list[int]) -> Any:
    """As vLLM tells them, each with a log-probability of minus itself."""
    from vllm.logprobs import FlatLogprobs

    places = list(range(len(tokens) + 1))
    flat = FlatLogprobs(places[:-1], places[1:], tokens, [-float(token) for token in tokens], [1] * len(tokens), [])
    output = SimpleNamespace(token_ids=tokens, logprobs=flat, finish_reason=None)
    return SimpleNamespace(prompt_logprobs=None, outputs=[output])


def ask(
    max_tokens: int = 8, *, policy: str | None = None, num_samples: int = 1, tenant: str = "", **params: Any
) -> SampleRequest:
    return SampleRequest(
        prompt=(5, 6, 7),
        params=SamplingParams(**{"max_tokens": max_tokens, "stop_at_eos": False} | params),
        policy=None if policy is None else DepotKey(policy),
        num_samples=num_samples,
        tenant=tenant,
    )
