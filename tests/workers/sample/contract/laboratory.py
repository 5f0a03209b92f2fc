"""A small random model, adapters for it, references by plain forward passes, and the engines on trial."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from openrl.domain.sampling import SampleResult, SamplingParams, Sequence
from openrl.domain.tensor import DType
from openrl.domain.tensor import Tensor as Raw
from workers.model.arrays import from_domain, to_domain
from workers.sample.request import SampleRequest

VOCAB, CONTEXT, EOS = 97, 256, 2
RANK, ALPHA = 4, 16
MAX_RANK = 8  #: that vLLM is started with
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
PARAMS = {"temperature", "top_p", "top_k", "seed", "stop_strings", "stop_tokens", "stop_at_eos"}


class Engine(Protocol):
    def submit(self, request: SampleRequest) -> "Future[SampleResult]": ...
    def cancel(self, future: "Future[SampleResult]") -> None: ...
    def close(self) -> None: ...


def spell(tokens: list[int]) -> str:
    """A toy tokenizer: each token is a letter."""
    return "".join(chr(ord("a") + token % 26) for token in tokens)


def make_model(folder: Path) -> None:
    """Far from uniform, so that greedy choices, cuts and adapters matter; its heads are wide enough for vLLM's CPU
    build."""
    torch.manual_seed(7)
    sizes = {"vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": CONTEXT}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    config = LlamaConfig(**sizes, **heads, pad_token_id=0, bos_token_id=1, eos_token_id=EOS)
    module = LlamaForCausalLM(config)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    module.save_pretrained(folder)


class Laboratory:
    """`engine` reads the files of policies through `fetch`."""

    def __init__(self, folder: Path) -> None:
        self.module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.files: dict[str, dict[str, bytes]] = {}
        self.fetched: list[str] = []
        self.engine: Engine

    # --------------------------------------------------------------------------------------------- asking
    def ask(self, prompt: Iterable[int], max_tokens: int = 8, **fields: Any) -> SampleRequest:
        params = {"stop_at_eos": False} | {name: fields.pop(name) for name in PARAMS & fields.keys()}
        return SampleRequest(prompt=tuple(prompt), params=SamplingParams(max_tokens=max_tokens, **params), **fields)

    def run(self, *requests: SampleRequest) -> list[SampleResult]:
        """All at once."""
        return [future.result(60) for future in [self.engine.submit(request) for request in requests]]

    def sample(self, prompt: Iterable[int], max_tokens: int = 8, **fields: Any) -> Sequence:
        return self.run(self.ask(prompt, max_tokens, **fields))[0].sequences[0]

    def error(self, request: SampleRequest) -> BaseException | None:
        return self.engine.submit(request).exception(60)

    # -------------------------------------------------------------------------------------------- reading
    def tokens(self, sequence: Sequence) -> list[int]:
        return [int(token) for token in self.array(sequence.tokens)]

    def array(self, raw: Raw | None) -> "np.ndarray[Any, Any]":
        assert raw is not None
        return from_domain(raw).numpy()

    # ------------------------------------------------------------------------------------------- policies
    def fetch(self, key: str) -> dict[str, bytes]:
        self.fetched.append(key)
        return self.files[key]

    def publish(self, key: str, seed: int, *, scale: float = 0.1, leaves: Iterable[str] = (), rank: int = RANK) -> str:
        """Files of a random adapter in PEFT's format; on all linear layers but the head, or on those named."""
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for name, linear in self._linears(leaves):
            name = f"base_model.model.{name}.lora"
            tensors[f"{name}_A.weight"] = torch.randn(rank, linear.in_features, generator=generator) * scale
            tensors[f"{name}_B.weight"] = torch.randn(linear.out_features, rank, generator=generator) * scale
        targets = sorted({name.split(".")[-3] for name in tensors})
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": ALPHA, "target_modules": targets, "bias": "none"}
        self.files[key] = {
            "adapter_config.json": json.dumps(config).encode(),
            "adapter_model.safetensors": save(tensors, {"format": "pt"}),
        }
        return key

    def _linears(self, leaves: Iterable[str]) -> Iterator[tuple[str, torch.nn.Linear]]:
        wanted = set(leaves)
        for name, each in self.module.named_modules():
            leaf = name.rpartition(".")[2]
            if isinstance(each, torch.nn.Linear) and (leaf in wanted if wanted else leaf != "lm_head"):
                yield name, each

    # ------------------------------------------------------------------------------------------ reference
    def logits(self, tokens: list[int], policy: str | None = None) -> Tensor:
        """float32 [N, V] after each token, by one plain pass, with an adapter's product added to the weights."""
        with torch.no_grad(), self._merged(policy):
            return self.module(torch.tensor([tokens])).logits[0].float()

    def expected(self, prompt: list[int], drawn: list[int], temperature: float, policy: str | None = None) -> Tensor:
        """Log-probabilities [drawn, V] that the drawn tokens were chosen from, before any cut."""
        logits = self.logits(prompt + drawn, policy)[len(prompt) - 1 : -1]
        return torch.log_softmax(logits / (temperature or 1.0), -1)

    def greedy(self, prompt: list[int], count: int, policy: str | None = None) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.logits(tokens, policy)[-1].argmax()))
        return tokens[len(prompt) :]

    @contextmanager
    def _merged(self, policy: str | None) -> Iterator[None]:
        if policy is None:
            yield
            return
        from safetensors.torch import load

        tensors = load(self.files[policy]["adapter_model.safetensors"])
        before = {name: parameter.clone() for name, parameter in self.module.named_parameters()}
        for key in tensors:
            if key.endswith("_A.weight"):
                product = tensors[key.replace("_A.", "_B.")] @ tensors[key]
                name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                self.module.get_submodule(name).weight.add_(product * (ALPHA / RANK))
        try:
            yield
        finally:
            for name, parameter in self.module.named_parameters():
                parameter.copy_(before[name])


class Stepped:
    """The torch engine with a thread that steps it, as a worker's device loop does."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._drive, daemon=True)
        self._thread.start()

    def submit(self, request: SampleRequest) -> "Future[SampleResult]":
        future: Future[SampleResult] = self.engine.submit(request)
        return future

    def cancel(self, future: "Future[SampleResult]") -> None:
        self.engine.cancel(future)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.engine.close()

    def _drive(self) -> None:
        while not self._stopping.is_set():
            if self.engine.idle:
                time.sleep(0.001)
            else:
                self.engine.step()


def targets(rows: list[list[int]]) -> Raw:
    return to_domain(torch.tensor(rows), DType.INT64)


def chances(logits: Tensor, temperature: float, top_k: int = -1, top_p: float = 1.0) -> Tensor:
    """Reference: what tokens [N, V] are drawn with after the cuts, float64; top-p counts on what top-k left."""
    chance, order = torch.softmax(logits.double() / temperature, -1).sort(-1, descending=True)
    if top_k > 0:
        chance[:, top_k:] = 0
    chance /= chance.sum(-1, keepdim=True)
    chance[chance.cumsum(-1) - chance >= top_p] = 0
    chance /= chance.sum(-1, keepdim=True)
    return torch.zeros_like(chance).scatter_(-1, order, chance)


def fit(drawn: Tensor, chance: Tensor, cells: int = 64) -> float:
    """How likely draws [N] from chances [N, V] are to fit no better than this, by chi-square. Each draw falls, in the
    order of chances, into its token's piece of the line from 0 to 1, somewhere: evenly spread if all is right."""
    sizes, order = chance.sort(-1, descending=True)
    ranks = (order == drawn[:, None]).int().argmax(-1, keepdim=True)
    size = sizes.gather(-1, ranks)[:, 0]
    assert bool((size > 0).all()), "a token was drawn that had been cut"
    within = torch.rand(len(drawn), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    places = (sizes.cumsum(-1) - sizes).gather(-1, ranks)[:, 0] + within * size
    counts = torch.histc(places, cells, 0, 1)
    wanted = len(drawn) / cells
    distance = ((counts - wanted) ** 2 / wanted).sum()
    return float(torch.special.gammaincc(torch.tensor((cells - 1) / 2, dtype=torch.float64), distance / 2))


Start = Callable[[Laboratory, Path], Engine]


def start_torch(lab: Laboratory, folder: Path) -> Engine:
    from workers.model.base import load_base
    from workers.sample.torch.engine import SampleEngine

    base = load_base(folder, device=torch.device("cpu"), dtype=torch.float32)
    return Stepped(SampleEngine(base, decode=spell, fetch=lab.fetch, max_rows=256, cache_tokens=1 << 15, adapters=4))


def start_vllm(lab: Laboratory, folder: Path) -> Engine:
    from workers.sample.vllm.adapters import Adapters
    from workers.sample.vllm.engine import SampleEngine
    from workers.sample.vllm.facts import facts_of
    from workers.sample.vllm.launch import Wish, start

    facts = facts_of(str(folder))
    wish = Wish(
        source=str(folder),
        dtype="float32",
        context_length=facts.context_length,
        max_rows=256,
        max_lora_rank=MAX_RANK,
        max_loras=2,
        max_cpu_loras=3,
        targets=facts.targets,
        cache_bytes=1 << 28,
        threads=1,
        on_cpu=True,
        extra={"max_num_batched_tokens": 256},  # so that prompts come in chunks
    )
    adapters = Adapters(folder / "adapters", fetch=lab.fetch, targets=facts.targets, limit=4)
    return SampleEngine(lambda: start(wish), facts=facts, decode=spell, adapters=adapters, places=256)


STARTS: dict[str, Start] = {"torch": start_torch, "vllm": start_vllm}
