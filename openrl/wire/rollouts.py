"""Batches of rollouts: the JSON request, and its translation into actions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey
from openrl.domain.limits import check_chars, check_context, check_room, check_vocabulary
from openrl.domain.model import ModelCard
from openrl.domain.rollout import Message, RewardPart, RollOut
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import Tensor
from openrl.wire.arrays import tensor_of
from openrl.wire.base import INT32, Metadata, Wire
from openrl.wire.sampling import MOST_SAMPLES, SamplingOptions, to_params

MOST_PROMPTS = 10_000
MOST_ROLLOUTS = 200_000  #: prompts times group size
MOST_REWARDS = 64
PARAMS_CHARS = 100_000_000  #: of all reward functions, times prompts
MOST_MESSAGES = 4096

Name = Annotated[str, Field(min_length=1, max_length=200)]


def as_rewards(value: object) -> object:
    """Names alone, one or several, as rewards without weight or parameters."""
    items = [value] if isinstance(value, str | dict) else value
    if not isinstance(items, list):
        raise ValueError("must be a name, or a list of names and of objects with a name")
    return [{"name": item} if isinstance(item, str) else item for item in items]


class PolicyChoice(Wire):
    """Exactly one."""

    base_model: str | None = None
    path: str | None = None
    sampler: str | None = None
    run: str | None = None

    @property
    def chosen(self) -> tuple[str, str]:
        """Which, and its name. Raises FieldInvalid for none or several."""
        given = [(field, name) for field, name in self if name is not None]
        if len(given) != 1:
            raise FieldInvalid("policy", "must have exactly one of base_model, path, sampler and run")
        return given[0]


class ChatMessage(Wire):
    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str


class PromptChoice(Wire):
    """Exactly one of messages, text and tokens."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True, max_length=MOST_MESSAGES)] | None = None
    text: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0, le=INT32)]], Field(fail_fast=True)] | None = None
    context: Metadata = Field(default_factory=dict)
    id: Annotated[str, Field(max_length=200)] = ""


class RewardChoice(Wire):
    name: Name
    weight: float = Field(1.0, allow_inf_nan=False)
    params: Metadata = Field(default_factory=dict)


class RolloutRequest(Wire):
    key: Annotated[str, Field(min_length=8, max_length=200)]
    """Made by the client, new for every new request: a resend with the same key is the same batch."""
    policy: PolicyChoice
    prompts: Annotated[list[PromptChoice], Field(fail_fast=True, min_length=1, max_length=MOST_PROMPTS)]
    group_size: int = Field(ge=1, le=MOST_SAMPLES)
    sampling: SamplingOptions
    rewards: Annotated[
        list[RewardChoice], Field(fail_fast=True, min_length=1, max_length=MOST_REWARDS), BeforeValidator(as_rewards)
    ]
    on_failure: Literal["drop", "fail"] = "drop"


def to_rollouts(request: RolloutRequest, card: ModelCard, policy: DepotKey | None) -> list[RollOut]:
    """An action for each prompt, in their order. Raises FieldInvalid naming the first field that is wrong."""
    if len(request.prompts) * request.group_size > MOST_ROLLOUTS:
        asked = f"{len(request.prompts)} prompts of {request.group_size} rollouts each"
        raise FieldInvalid("group_size", f"{asked} are more than {MOST_ROLLOUTS}; send several batches")
    if request.sampling.max_tokens is None:
        raise FieldInvalid("sampling.max_tokens", "is missing; say how long a rollout may get")
    with _named():
        params = to_params(request.sampling, 1, card)
    return [
        RollOut(
            base_model=card.name,
            policy=policy,
            number=number,
            num_samples=request.group_size,
            params=params,
            **_prompt(prompt, f"prompts[{number}]", params, card),
        )
        for number, prompt in enumerate(request.prompts)
    ]


def to_rewards(
    request: RolloutRequest, known: Sequence[str], reading: Mapping[str, Mapping[str, str]]
) -> tuple[RewardPart, ...]:
    """Raises FieldInvalid for a function that is not among the known ones (none are: nobody could tell), or is named
    twice: their parts would have the same name. `reading` has the parameters of functions that do not need them all."""
    names = [reward.name for reward in request.rewards]
    size = sum(len(name) + len(text) for reward in request.rewards for name, text in reward.params.items())
    if size * len(request.prompts) > PARAMS_CHARS:
        asked = f"{size} characters of params for each of {len(request.prompts)} prompts"
        raise FieldInvalid("rewards", f"{asked} are more than {PARAMS_CHARS} in all; send several batches")
    for number, name in enumerate(names):
        if known and name not in known:
            there_are = ", ".join(known)
            problem = f"no reward worker has a function {name!r}; there are: {there_are}"
            raise FieldInvalid(f"rewards[{number}].name", problem)
        if name in names[:number]:
            raise FieldInvalid(f"rewards[{number}].name", f"{name!r} is named twice; each function is taken once")
    return tuple(
        RewardPart(name=each.name, weight=each.weight, params=dict(reading.get(each.name, each.params)))
        for each in request.rewards
    )


def _prompt(prompt: PromptChoice, where: str, params: SamplingParams, card: ModelCard) -> dict[str, Any]:
    given = [name for name in ("messages", "text", "tokens") if getattr(prompt, name) is not None]
    if len(given) != 1:
        raise FieldInvalid(where, "must have exactly one of messages, text and tokens")
    if not getattr(prompt, given[0]):
        raise FieldInvalid(f"{where}.{given[0]}", "is empty; send at least one character, message or token")
    chars = len(prompt.text or "") + sum(len(each.content) for each in prompt.messages or ())
    check_chars(chars, card.context_length, f"{where}.{given[0]}")
    if prompt.messages is not None:
        return {"messages": tuple(Message(role=each.role, content=each.content) for each in prompt.messages)}
    return {"text": prompt.text} if prompt.tokens is None else {"tokens": _tokens(prompt.tokens, where, params, card)}


def _tokens(tokens: list[int], where: str, params: SamplingParams, card: ModelCard) -> Tensor:
    check_vocabulary(tokens, card.vocab_size, f"{where}.tokens")
    check_context(len(tokens), card.context_length, f"{where}.tokens")
    with _named(where):
        check_room(len(tokens), params.max_tokens, card.context_length)
    return tensor_of(np.array(tokens, dtype="<i4"))


@contextmanager
def _named(where: str = "") -> Iterator[None]:
    """What a sample's field is called here."""
    try:
        yield
    except FieldInvalid as error:
        field = f"{where}.tokens" if error.field == "prompt" else error.field.replace("sampling_params", "sampling", 1)
        problem = f"{error.problem} ({where})" if where and field.startswith("sampling") else error.problem
        raise FieldInvalid(field, problem) from None
