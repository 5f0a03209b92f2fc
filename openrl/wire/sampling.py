"""Samplers and samples: the JSON requests, and their translation into an action."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from openrl.domain.errors import FieldInvalid
from openrl.domain.limits import LEAST_TEMPERATURE, check_context, check_room, outside
from openrl.domain.model import ModelCard
from openrl.domain.op import Sample
from openrl.domain.policy import Sampler
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import Tensor
from openrl.wire.arrays import Array, check_matrix, dense_of_csr, tensor_of
from openrl.wire.base import INT32, INT64, Seed, Wire

#: Samples of one prompt in one request, and candidates per position.
MOST_SAMPLES = 1024
MOST_CANDIDATES = 1024
#: Chunks of one prompt.
MOST_CHUNKS = 1024
#: Stop sequences of one request, and characters of one.
MOST_STOPS = 128
STOP_CHARS = 1024

Token = Annotated[int, Field(ge=-INT32, le=INT32)]
Indices = Annotated[list[Annotated[int, Field(ge=0, le=INT64)]], Field(fail_fast=True)]
Count = Annotated[int, Field(ge=0, le=MOST_CANDIDATES)]


def as_stop(value: object) -> object:
    """A string, strings, or token ids, as the tuple of them; None stays None."""
    if value is None:
        return None
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError("must be a string, a list of strings or a list of token ids")
    if len(items) > MOST_STOPS:
        raise ValueError(f"has {len(items)} entries; at most {MOST_STOPS} are taken")
    all_text = all(isinstance(item, str) and 0 < len(item) <= STOP_CHARS for item in items)
    if not all_text and not all(type(item) is int for item in items):
        raise ValueError(f"must hold only strings of 1 to {STOP_CHARS} characters, or only token ids")
    return tuple(items)


class SamplingOptions(Wire):
    max_tokens: int | None = Field(None, ge=1, le=INT32)
    seed: Seed | None = None
    stop: Annotated[tuple[str, ...] | tuple[int, ...] | None, BeforeValidator(as_stop)] = None
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_k: int = Field(-1, ge=-1, le=INT32)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)


class PromptChunk(Wire):
    """A chunk of any kind, so that what is not text is refused by name."""

    type: str = "encoded_text"
    tokens: Annotated[list[Token], Field(fail_fast=True)] = Field(default_factory=list)
    data: Any = None
    format: Any = None
    location: Any = None
    expected_tokens: Any = None
    dmel: Any = None


class Prompt(Wire):
    chunks: Annotated[list[PromptChunk], Field(fail_fast=True, max_length=MOST_CHUNKS)]


class TargetTokens(Wire):
    data: Annotated[list[Annotated[int, Field(ge=-1, le=INT32)]], Field(fail_fast=True)]
    dtype: Literal["int64"]
    shape: Annotated[list[int], Field(fail_fast=True, max_length=8)] | None = None
    sparse_crow_indices: Indices | None = None
    sparse_col_indices: Indices | None = None


class CreateSamplingSession(Wire):
    type: Literal["create_sampling_session"] = "create_sampling_session"
    session_id: str
    sampling_session_seq_id: int = Field(ge=0, le=INT32)
    base_model: str | None = None
    model_path: str | None = None


class SampleRequest(Wire):
    type: Literal["sample"] = "sample"
    sampling_session_id: str
    seq_id: int = Field(ge=0, le=INT64)
    num_samples: int = Field(1, ge=0, le=MOST_SAMPLES)
    prompt: Prompt
    sampling_params: SamplingOptions
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: int | None = Field(None, ge=1)
    topk_prompt_logprobs: Count = 0
    topk_sample_logprobs: Count = 0
    target_prompt_logprobs: TargetTokens | None = None
    prompt_alt_tokens_k: Count = 0
    record_stability_info: bool | None = None


def to_sample(request: SampleRequest, sampler: Sampler, card: ModelCard, dense_bytes: int) -> Sample:
    """The action, every number of it checked. `dense_bytes` bounds sparse target tokens when they are made dense."""
    if request.record_stability_info:
        raise FieldInvalid("record_stability_info", "is not supported by this server")
    tokens = to_prompt(request.prompt, card)
    return Sample(
        base_model=sampler.base_model,
        policy=sampler.policy,
        prompt=tensor_of(tokens),
        num_samples=request.num_samples,
        params=to_params(request.sampling_params, tokens.size, card),
        prompt_logprobs=bool(request.prompt_logprobs),
        prompt_logprobs_last_n=_last_n(request, tokens.size),
        topk_prompt_logprobs=_candidates("topk_prompt_logprobs", request.topk_prompt_logprobs, card),
        topk_sample_logprobs=_candidates("topk_sample_logprobs", request.topk_sample_logprobs, card),
        target_prompt_logprobs=to_targets(request.target_prompt_logprobs, tokens.size, card, dense_bytes),
        prompt_alternatives=_candidates("prompt_alt_tokens_k", request.prompt_alt_tokens_k, card),
    )


def to_prompt(prompt: Prompt, card: ModelCard) -> Array:
    for at, chunk in enumerate(prompt.chunks):
        if chunk.type != "encoded_text":
            raise FieldInvalid(f"prompt.chunks[{at}]", f"{chunk.type} chunks are not supported; send text tokens")
    tokens = np.array([token for chunk in prompt.chunks for token in chunk.tokens], dtype="<i4")
    if tokens.size == 0:
        raise FieldInvalid("prompt", "has no tokens; send at least one, such as the model's begin-of-sequence token")
    if tokens.min() < 0 or tokens.max() >= card.vocab_size:
        at = int(np.flatnonzero((tokens < 0) | (tokens >= card.vocab_size))[0])
        raise outside("prompt", int(tokens[at]), at, card.vocab_size)
    check_context(tokens.size, card.context_length, "prompt")
    return tokens


def to_params(options: SamplingOptions, prompt_tokens: int, card: ModelCard) -> SamplingParams:
    if options.top_k == 0:
        raise FieldInvalid("sampling_params.top_k", "is 0; it must be -1 (keep all) or at least 1")
    if 0 < options.temperature < LEAST_TEMPERATURE:
        raise FieldInvalid(
            "sampling_params.temperature", f"is {options.temperature:g}; send 0 for the likeliest token each time"
        )
    stops = options.stop or ()
    return SamplingParams(
        max_tokens=_max_tokens(options.max_tokens, prompt_tokens, card),
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        stop_strings=tuple(stop for stop in stops if isinstance(stop, str)),
        stop_tokens=tuple(_stop_token(stop, card) for stop in stops if isinstance(stop, int)),
        stop_at_eos=options.stop != (),
    )


def to_targets(targets: TargetTokens | None, prompt_tokens: int, card: ModelCard, dense_bytes: int) -> Tensor | None:
    """int64 [prompt - 1, K], -1 where nothing is asked."""
    where = "target_prompt_logprobs"
    if targets is None:
        return None
    shape = tuple(targets.shape or ())
    check_matrix(shape, where)
    if shape[0] != prompt_tokens - 1 or shape[1] > MOST_CANDIDATES:
        raise FieldInvalid(
            f"{where}.shape",
            f"is {list(shape)}; it must be [{prompt_tokens - 1}, K], prompt tokens but the first, "
            f"with K at most {MOST_CANDIDATES}",
        )
    if 8 * shape[0] * shape[1] > dense_bytes:
        raise FieldInvalid(where, f"takes more than {dense_bytes} bytes; ask for fewer targets per position")
    ids = _target_ids(targets, shape, where)
    if ids.size and ids.max() >= card.vocab_size:
        at = int(ids.ravel().argmax())
        raise outside(where, int(ids.max()), at, card.vocab_size)
    return tensor_of(ids)


def _target_ids(targets: TargetTokens, shape: tuple[int, ...], where: str) -> Array:
    values = np.array(targets.data, dtype="<i8")
    rows, columns = targets.sparse_crow_indices, targets.sparse_col_indices
    if rows is not None and columns is not None:
        if not rows:
            raise FieldInvalid(f"{where}.sparse_crow_indices", "is empty; it has one entry more than there are rows")
        return dense_of_csr(values, np.array(rows, "<i8"), np.array(columns, "<i8"), shape, -1, where)
    if rows is not None or columns is not None:
        raise FieldInvalid(where, "send sparse_crow_indices and sparse_col_indices together")
    if values.size != shape[0] * shape[1]:
        raise FieldInvalid(f"{where}.shape", f"is {list(shape)} but {values.size} values were sent")
    return values.reshape(shape)


def _max_tokens(asked: int | None, prompt_tokens: int, card: ModelCard) -> int:
    if asked is None and not card.bounded:
        raise FieldInvalid("sampling_params.max_tokens", f"is missing; nobody knows the context of {card.name} yet")
    check_room(prompt_tokens, asked or 1, card.context_length)
    return asked or card.context_length - prompt_tokens


def _stop_token(token: int, card: ModelCard) -> int:
    if not 0 <= token < card.vocab_size:
        raise FieldInvalid(
            "sampling_params.stop", f"token {token} is outside the vocabulary (0..{card.vocab_size - 1})"
        )
    return token


def _candidates(field: str, count: int, card: ModelCard) -> int:
    if count > card.vocab_size:
        raise FieldInvalid(field, f"is {count}; the vocabulary has {card.vocab_size} tokens")
    return count


def _last_n(request: SampleRequest, prompt_tokens: int) -> int | None:
    count = request.prompt_logprobs_last_n
    if count is None:
        return None
    if not request.prompt_logprobs:
        raise FieldInvalid("prompt_logprobs_last_n", "needs prompt_logprobs=true")
    if count > prompt_tokens - 1:
        raise FieldInvalid("prompt_logprobs_last_n", f"is {count}; this prompt allows 1..{prompt_tokens - 1}")
    return count
