"""Changes to vLLM inside of its worker processes, so that log-probabilities are those that samples are to have.

Sampled tokens: vLLM knows the model's own distribution and the one after top-k and top-p have cut it. A sample's is in
between, scaled by the temperature and not cut. It is taken where vLLM hands scaled logits to its top-k/top-p step.

Seeds: vLLM's random states depend on how a prompt was cut into chunks, and its CPU build's engine ends of that. Seeded
samples are drawn by the luck that both engines share, which counts tokens.

Prompts: vLLM computes their logits under the step's assignment of adapters to sampled rows, one for each request, which
for adapters of the head is wrong (and ends the CPU build's engine where two requests meet in a step). Here each prompt
is scored by itself, under its own adapter. Chosen tokens take the place of the likeliest ones in what is told.

On a CPU: rows of the base model, which have place -1, would be given the adapter in the last place. Each layer gets a
place behind that, which stays zero.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from vllm.lora.layers import LoRAMapping
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from workers.sample.luck import race
from workers.sample.randomness import Words, keys

#: What vLLM is told to mix into its workers.
EXTENSION = f"{__name__}.WorkerExtension"
#: What a request carries that vLLM passes through: chosen prompt tokens, [P - 1, K] with -1 for none, and the stream of
#: a seeded sample's luck.
TARGETS, STREAM = "openrl_targets", "openrl_stream"


class WorkerExtension:
    """Methods that vLLM's workers get beside their own, for `collective_rpc`."""

    model_runner: Any

    def openrl_change(self) -> str:
        """Put the changes in place. An empty answer, or why that cannot be."""
        runner = self.model_runner
        sampler: Any = getattr(runner, "sampler", None)
        for holder, names in (
            (runner, ("_get_prompt_logprobs_dict", "num_prompt_logprobs", "requests", "input_batch", "lora_config")),
            (sampler, ("topk_topp_sampler", "gather_logprobs", "logprobs_mode")),
        ):
            missing = [name for name in names if not hasattr(holder, name)]
            if missing:
                return f"{type(runner).__module__}: {type(holder).__name__} has no {', '.join(missing)}"
        if runner.lora_config and runner.device.type == "cpu":
            _add_zero_place(runner.lora_manager._adapter_manager.modules.values())
        sampler.topk_topp_sampler = Draws(runner)
        sampler.logprobs_mode = "processed_logprobs"  # those of `Draws`; or raw ones would be computed first, in vain
        runner._get_prompt_logprobs_dict = PromptByPrompt(runner)
        return ""


def _add_zero_place(layers: Iterable[Any]) -> None:
    """Behind the adapters' places in matrices [places, 1, …]."""
    for layer in layers:
        for name in ("lora_a_stacked", "lora_b_stacked"):
            held = getattr(layer, name)
            parts = held if isinstance(held, tuple) else (held,)
            wider = tuple(torch.cat([part, torch.zeros_like(part[:1])]) for part in parts)
            setattr(layer, name, wider if isinstance(held, tuple) else wider[0])


class Draws(nn.Module):
    """Stands before vLLM's top-k/top-p step: tells the distribution that it was given, and draws for seeded rows."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.step: Any = runner.sampler.topk_topp_sampler
        self._runner = runner

    def forward(
        self, logits: Tensor, generators: Mapping[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tokens [n] and log-probabilities float32 [n, V] of logits [n, V], which are scaled and may be overwritten."""
        logprobs = logits.log_softmax(-1, dtype=torch.float32)
        rows, words = self._luck(len(logits))
        if not rows:
            return self.step(logits, generators, k, p)[0], logprobs
        some = torch.tensor(rows, device=logits.device)
        cut = apply_top_k_top_p(logits[some], None if k is None else k[some], None if p is None else p[some])
        drawn = race(cut.softmax(-1, dtype=torch.float32), words)
        tokens: Tensor = self.step(logits, generators, k, p)[0]
        return tokens.index_copy(0, some, drawn.to(tokens.dtype)), logprobs

    def _luck(self, count: int) -> tuple[list[int], Words]:
        """Seeded rows of the step and their random bits, which the number of tokens drawn so far counts."""
        batch = self._runner.input_batch
        if batch.num_reqs != count:  # one of vLLM's own trials
            return [], keys(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        params = [self._runner.requests[name].sampling_params for name in batch.req_ids]
        streams = [(each.extra_args or {}).get(STREAM) for each in params]
        rows = [row for row, stream in enumerate(streams) if stream is not None]
        steps = batch.num_tokens_no_spec[rows] - batch.num_prompt_tokens[rows]
        return rows, keys(np.array([streams[row] for row in rows], np.uint64), steps.astype(np.uint64))


class PromptByPrompt:
    """Stands for the model runner's method that scores the prompts of a step, and calls that prompt by prompt."""

    def __init__(self, runner: Any) -> None:
        self._runner, self._score = runner, runner._get_prompt_logprobs_dict

    def __call__(self, hidden: Tensor, scheduled: Mapping[str, int]) -> dict[str, Any]:
        """Scores by request, from the step's hidden states and how many tokens of each request it computed."""
        runner, asked, found = self._runner, self._runner.num_prompt_logprobs, {}
        try:
            for name in [name for name in asked if name in scheduled]:
                runner.num_prompt_logprobs = alone = {name: asked[name]}
                with self._adapted(runner.requests[name]), self._chosen(runner.requests[name]):
                    found.update(self._score(hidden, scheduled))
                if not alone:  # its prompt has ended
                    del asked[name]
        finally:
            runner.num_prompt_logprobs = asked
        return found

    def _adapted(self, request: Any) -> AbstractContextManager[None]:
        """Inside, logits are those under the request's adapter."""
        runner = self._runner
        if not runner.lora_config:
            return nullcontext()
        number = request.lora_request.lora_int_id if request.lora_request else 0
        compute, most = runner.model.compute_logits, runner.scheduler_config.max_num_seqs

        def logits(hidden: Tensor) -> Tensor:
            return torch.cat(
                [piece(rows) for rows in torch.split(hidden, most)]
            )  # vLLM can assign no more rows at once

        def piece(rows: Tensor) -> Tensor:
            numbers = (number,) * len(rows)
            mapping = LoRAMapping(numbers, numbers, is_prefill=True)
            runner.lora_manager._adapter_manager.set_adapter_mapping(mapping)
            computed: Tensor = compute(rows)
            return computed

        return _replaced(runner.model, "compute_logits", logits)

    def _chosen(self, request: Any) -> AbstractContextManager[None]:
        """Inside, the last columns of what is told are the request's chosen tokens."""
        rows = (request.sampling_params.extra_args or {}).get(TARGETS)
        if rows is None:
            return nullcontext()
        mine = torch.tensor(rows[request.num_computed_tokens :]).clamp(min=0)
        inner: Callable[..., Any] = self._runner.sampler.gather_logprobs

        def gather(logprobs: Tensor, width: int, token_ids: Tensor) -> Any:
            columns = inner(logprobs, width, token_ids)
            ids = mine[: len(logprobs)].to(logprobs.device)
            columns.logprob_token_ids[:, -ids.shape[1] :] = ids
            columns.logprobs[:, -ids.shape[1] :] = logprobs.gather(-1, ids)
            return columns

        return _replaced(self._runner.sampler, "gather_logprobs", gather)


@contextmanager
def _replaced(module: nn.Module, name: str, method: Callable[..., Any]) -> Iterator[None]:
    vars(module)[name] = method
    try:
        yield
    finally:
        del vars(module)[name]
