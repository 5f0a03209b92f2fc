"""The sides of the sampling bench: processes that serve asks, started and told what to do."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from asks import Ask, to_plain, tokens
from driving import Load, started

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Served:
    """What a side tells of one load."""

    seconds: float
    tokens: int  #: that were asked for and came out
    waits: list[float]  #: seconds from each ask's arrival to its end
    cpu_seconds: float  #: of the side's process and those below it

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Tokens per second of CPU time, which is all but deaf to others on the machine (not where processes spin)."""
        return self.tokens / self.cpu_seconds


@dataclass(frozen=True, slots=True)
class Model:
    """What all sides have in common."""

    folder: str
    dtype: str
    threads: int


@contextmanager
def torch_side(name: str, model: Model, args: argparse.Namespace, policies: int = 0) -> Iterator[Load]:
    """A side of `sample_load.py`, ready to serve."""
    options = ["--side", name, "--policies", str(policies), "--rank", str(args.rank)]
    env = {"OMP_NUM_THREADS": str(model.threads)}  # threads wait as OpenMP lets them: nobody else wants the cores
    with _side(sys.executable, "sample_load.py", model, options, env, args.limit) as load:
        yield load


@contextmanager
def vllm_side(model: Model, args: argparse.Namespace) -> Iterator[Load]:
    """vLLM alone, from the environment that has it, ready to serve."""
    with _side(args.vllm_python, "vllm_load.py", model, [], _preloaded(args.vllm_python), args.limit) as load:
        yield load


@contextmanager
def worker_side(name: str, model: Model, args: argparse.Namespace, policies: int) -> Iterator[Load]:
    """A side of `vllm_worker_load.py`, ready to serve; like vLLM alone it has its OpenMP library preloaded."""
    options = ["--side", name, "--policies", str(policies), "--rank", str(args.rank)]
    env = {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE", **_preloaded(args.vllm_python)}
    with _side(args.vllm_python, "vllm_worker_load.py", model, options, env, args.limit) as load:
        yield load


def _preloaded(python: str) -> dict[str, str]:
    """What vLLM advises for a CPU: the OpenMP library of the package `intel-openmp`, where the environment has it."""
    library = Path(python).absolute().parent.parent / "lib" / "libiomp5.so"
    return {"LD_PRELOAD": str(library)} if library.exists() else {}


@contextmanager
def _side(
    python: str, script: str, model: Model, options: Sequence[str], env: dict[str, str], limit: float
) -> Iterator[Load]:
    common = ["--model", model.folder, "--dtype", model.dtype, "--threads", str(model.threads)]
    with started(python, script, [*common, *options], env, limit) as load:
        load.until("ready")
        yield load
        load.ask()


def serve(load: Load, some: Sequence[Ask], in_flight: int | None = None, *, tells: bool = True) -> Served:
    """Have a side serve these and wait for it, at most `in_flight` of them at once. One that could leave
    log-probabilities out `tells` them or does."""
    load.ask(asks=to_plain(some), in_flight=in_flight, tells=tells)
    served = Served(**load.until("served"))
    if served.tokens != tokens(some):
        raise SystemExit(f"{served.tokens} tokens came out where {tokens(some)} were asked for")
    return served
