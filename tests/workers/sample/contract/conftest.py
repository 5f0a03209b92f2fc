"""The engines on trial: torch's wherever tests run, vLLM's in an environment of its own (`make vllm`)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

from laboratory import STARTS, Laboratory, make_model

#: vLLM takes its time to start, and warns of a good deal.
VLLM = [pytest.mark.vllm, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="session", params=["torch", pytest.param("vllm", marks=VLLM)])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """One engine for all tests: what one of them leaves behind must not change another."""
    folder = tmp_path_factory.mktemp(f"{request.param}-model")
    make_model(folder)
    lab = Laboratory(folder)
    lab.engine = STARTS[request.param](lab, folder)
    yield lab
    lab.engine.close()


@pytest.fixture
def served(lab: Laboratory) -> set[str]:
    """What not every engine does."""
    from laboratory import Stepped

    return {"prompt_alternatives", "hot", "cold", "any rank"} if isinstance(lab.engine, Stepped) else set()
