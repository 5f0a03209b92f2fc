"""Whether the torch engine can serve a model at all, found out at start by trying.

Two rows of different lengths are decoded with the engine's cache and masks and held against whole forward passes. A
sliding window is made so small for the trial that the rows are longer than it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from openrl.domain.errors import ModelUnsupported
from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SampleResult, SamplingParams
from workers.model.arrays import from_domain
from workers.model.base import BaseModel
from workers.sample.request import SampleRequest
from workers.sample.torch.engine import SampleEngine

LENGTHS = (9, 3)  #: tokens of the prompts
DRAWN = 4
WINDOW = 4  #: tokens that a sliding layer sees in the trial
TOP = 4  #: log-probabilities compared at each place
#: How far they may be apart, on a scale where the likeliest is 0 and one as likely as any is 1.
CLOSE = {torch.float32: 0.02, torch.bfloat16: 0.25}


def check_decoding(base: BaseModel, source: str) -> None:
    """Raises ModelUnsupported where decoding fails or gives something else than the whole model."""
    config = base.module.config.get_text_config()
    with _small_window(config), torch.inference_mode():
        prompts = [[(7 * n + 3 * place + 1) % base.vocab_size for place in range(n)] for n in LENGTHS]
        try:
            results = _decoded(base, prompts)
        except ModelUnsupported:
            raise
        except Exception as error:
            why = f"decoding with a key/value cache fails ({type(error).__name__}: {error})"
            raise ModelUnsupported(
                source, f"{base.architecture}: {why}; serve it with another sample engine"
            ) from error
        apart = max(_apart(base, prompt, result) for prompt, result in zip(prompts, results, strict=True))
    if not apart <= CLOSE.get(base.dtype, 0.25):
        why = f"decoded log-probabilities differ from a whole forward pass, by {apart:.2g} of their range"
        raise ModelUnsupported(source, f"{base.architecture}: {why}; serve it with another sample engine")


def _decoded(base: BaseModel, prompts: list[list[int]]) -> list[SampleResult]:
    engine = SampleEngine(base, decode=lambda _: "", fetch=_nothing, max_rows=2, cache_tokens=128)
    try:
        params = SamplingParams(max_tokens=DRAWN, temperature=0.0, stop_at_eos=False)
        futures = [
            engine.submit(SampleRequest(prompt=tuple(prompt), params=params, topk_sample_logprobs=TOP))
            for prompt in prompts
        ]
        while engine.step():
            pass
        return [future.result(timeout=0) for future in futures]
    finally:
        engine.close()


def _apart(base: BaseModel, prompt: list[int], result: SampleResult) -> float:
    """How far the likeliest tokens' log-probabilities are from those of a whole pass."""
    sequence = result.sequences[0]
    assert sequence.top_logprobs is not None
    ids, values = from_domain(sequence.top_logprobs.token_ids).long(), from_domain(sequence.top_logprobs.logprobs)
    whole = _whole(base, [*prompt, *from_domain(sequence.tokens).tolist()[:-1]])[len(prompt) - 1 :]
    expected = whole.gather(-1, ids)
    spread = (whole.amax(-1) - whole.mean(-1)).max()
    return float((values - expected).abs().max() / spread.clamp(min=1e-3))


def _whole(base: BaseModel, tokens: list[int]) -> Tensor:
    """Log-probabilities [length, vocab], on the CPU."""
    hidden = base.hidden(torch.tensor([tokens], device=base.device), use_cache=False)
    return torch.log_softmax(base.head(hidden)[0].float(), -1).cpu()


@contextmanager
def _small_window(config: Any) -> Iterator[None]:
    window = getattr(config, "sliding_window", None)
    if window is None:
        yield
        return
    config.sliding_window = min(int(window), WINDOW)
    try:
        yield
    finally:
        config.sliding_window = window


def _nothing(key: DepotKey) -> Mapping[str, bytes]:
    raise KeyError(key)
