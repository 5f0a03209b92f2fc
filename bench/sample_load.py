"""One side of the sampling bench: a model that serves asks, time after time, by this project or by Transformers alone.

`openrl` is the torch engine in a loop of one thread. `static` is `generate` on all asks as one batch, `serial` on one
after another, and `batching` Transformers' own continuous batching. Nothing ends a completion early, all sample at
temperature 1 from the whole vocabulary; the torch engine tells log-probabilities on top.
"""

import argparse
import gc
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from asks import Arrivals, Ask, asks, from_plain, over_policies
from lines import keep_stdout, tell, told
from transformers import AutoModelForCausalLM, GenerationConfig

from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SampleResult, SamplingParams
from openrl.machine import free_memory_bytes
from workers.model.base import load_base
from workers.model.layout import Group, LoraShape
from workers.sample.request import SampleRequest
from workers.sample.torch.engine import SampleEngine

#: Of Transformers' continuous batching: room for all asks at once, and passes of the size that came out fastest.
BLOCKS, BATCH_TOKENS = 128, 256
NAP_SECONDS = 0.001


class Side(Protocol):
    vocab: int

    def serve(self, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
        """How many useful tokens came out, and how long each ask took, in seconds from its arrival."""


class OpenRL:
    def __init__(self, options: argparse.Namespace) -> None:
        base = load_base(options.model, device=torch.device("cpu"), dtype=getattr(torch, options.dtype))
        base.pack(free_memory_bytes() // 4)
        self.engine = SampleEngine(base, decode=str, fetch=lambda key: {}, adapters=max(1, options.policies))
        self.vocab = base.vocab_size
        names = [target.name for target in base.layout.targets if target.group is not Group.UNEMBED]
        shape = LoraShape(base.layout, options.rank, names)
        for number in range(options.policies):
            self.engine.put(_key(number), shape, torch.randn(shape.size) * 0.01)

    def serve(self, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
        arrivals, ended, results = Arrivals(some, in_flight), [0.0] * len(some), []
        started = time.perf_counter()

        def take(future: Any, index: int) -> None:
            ended[index] = time.perf_counter() - started
            results.append(future.result())

        running = 0
        while len(results) < len(some):
            for index, ask in arrivals.due(time.perf_counter() - started, running - len(results)):
                future = self.engine.submit(_request(ask))
                future.add_done_callback(lambda future, index=index: take(future, index))
                running += 1
            if self.engine.idle:
                time.sleep(NAP_SECONDS)
            else:
                self.engine.step()
        return sum(map(_drawn, results)), [end - came for end, came in zip(ended, arrivals.came, strict=True)]


def _key(number: int) -> DepotKey:
    return DepotKey(f"policy {number}")


def _request(ask: Ask) -> SampleRequest:
    params = SamplingParams(max_tokens=ask.max_tokens, stop_at_eos=False)
    return SampleRequest(prompt=ask.prompt, params=params, policy=None if ask.policy is None else _key(ask.policy))


def _drawn(result: SampleResult) -> int:
    return sum(sequence.tokens.shape[0] for sequence in result.sequences)


class _Transformers:
    """The model as Transformers loads it."""

    def __init__(self, options: argparse.Namespace) -> None:
        dtype = getattr(torch, options.dtype)
        self.model: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, attn_implementation="sdpa")
        self.model.eval()
        self.vocab: int = self.model.config.vocab_size
        self.model.config.eos_token_id = None
        self.model.generation_config = GenerationConfig(do_sample=True, top_k=0, pad_token_id=0, use_cache=True)

    def generated(self, some: Sequence[Ask]) -> int:
        """Useful tokens of one batch, which runs to its longest completion."""
        width, longest = max(len(ask.prompt) for ask in some), max(ask.max_tokens for ask in some)
        ids = torch.tensor([[*[0] * (width - len(ask.prompt)), *ask.prompt] for ask in some])
        mask = torch.tensor([[*[0] * (width - len(ask.prompt)), *[1] * len(ask.prompt)] for ask in some])
        with torch.inference_mode():
            out = self.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=longest)
        assert out.shape == (len(some), width + longest), f"{tuple(out.shape)}: something ended generate early"
        return sum(ask.max_tokens for ask in some)


class Static(_Transformers):
    def serve(self, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
        started = time.perf_counter()
        useful = self.generated(some)
        return useful, [time.perf_counter() - started] * len(some)


class Serial(_Transformers):
    def serve(self, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
        started, useful, ended = time.perf_counter(), 0, []
        for ask in some:
            useful += self.generated([ask])
            ended.append(time.perf_counter() - started)
        return useful, ended


class Batching(_Transformers):
    def serve(self, some: Sequence[Ask], in_flight: int | None) -> tuple[int, list[float]]:
        from transformers import ContinuousBatchingConfig

        arrivals, ended, useful = Arrivals(some, in_flight), [0.0] * len(some), 0
        settings = ContinuousBatchingConfig(num_blocks=BLOCKS, max_batch_tokens=BATCH_TOKENS)
        with self.model.continuous_batching_context_manager(continuous_batching_config=settings) as manager:
            started, done, running = time.perf_counter(), 0, 0
            while done < len(some):
                for index, ask in arrivals.due(time.perf_counter() - started, running - done):
                    manager.add_request(
                        list(ask.prompt), request_id=str(index), max_new_tokens=ask.max_tokens, eos_token_id=-1
                    )
                    running += 1
                if not manager.is_running():
                    raise SystemExit("Transformers' continuous batching ended early")
                result = manager.get_result(timeout=NAP_SECONDS)
                if result is not None and result.is_finished():
                    ended[int(result.request_id)] = time.perf_counter() - started
                    useful, done = useful + len(result.generated_tokens), done + 1
        return useful, [end - came for end, came in zip(ended, arrivals.came, strict=True)]


SIDES: dict[str, Any] = {"openrl": OpenRL, "static": Static, "serial": Serial, "batching": Batching}


def warmed(side: Side, policies: int) -> None:
    """A few asks, so that everything has been done once."""
    few: Iterable[Ask] = asks(4, side.vocab, round_=-1)
    side.serve(over_policies(few, policies) if policies else list(few), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=sorted(SIDES), required=True)
    parser.add_argument("--model", required=True, help="folder")
    parser.add_argument("--dtype", required=True, help="float32 or bfloat16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--policies", type=int, default=0, help="adapters to have ready (default %(default)s)")
    parser.add_argument("--rank", type=int, default=16, help="of each (default %(default)s)")
    options = parser.parse_args()
    keep_stdout()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    side: Side = SIDES[options.side](options)
    warmed(side, options.policies)
    gc.collect()
    gc.freeze()
    tell("ready")
    for asked in told():
        before = os.times()
        started = time.perf_counter()
        useful, waits = side.serve(from_plain(asked["asks"]), asked["in_flight"])
        seconds, after = time.perf_counter() - started, os.times()
        cpu_seconds = after.user + after.system - before.user - before.system
        tell("served", seconds=seconds, cpu_seconds=cpu_seconds, tokens=useful, waits=waits)


if __name__ == "__main__":
    main()
