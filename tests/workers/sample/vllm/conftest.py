"""The vLLM engine with something in vLLM's place. vLLM itself must be installed."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from openrl.domain.ids import DepotKey

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

from fakes import FakeVllm

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """An engine on a FakeVllm: `make(fake, fetch=…, limit=…, died=…)`."""
    engines: list[Any] = []

    def make(
        fake: FakeVllm,
        fetch: Callable[[DepotKey], Mapping[str, bytes]] = lambda key: {},
        limit: int = 2,
        died: Callable[[], None] = lambda: None,
    ) -> Any:
        from workers.sample.vllm.adapters import Adapters
        from workers.sample.vllm.engine import SampleEngine
        from workers.sample.vllm.facts import Facts

        async def start() -> FakeVllm:
            return fake

        facts = Facts(
            architecture="Fake", vocab_size=512, context_length=64, eos_token_ids=(2,), linears=(("q_proj", 8, 8),)
        )
        adapters = Adapters(tmp_path / "adapters", fetch=fetch, targets=facts.targets, limit=limit)

        def spell(tokens: list[int]) -> str:
            return "".join(chr(ord("a") + token) for token in tokens)

        engines.append(SampleEngine(start, facts=facts, decode=spell, adapters=adapters, places=4, died=died))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
