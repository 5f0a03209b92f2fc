"""A request for rollouts, made of what callers have at hand. What the fields may hold is checked by the server."""

import json
import operator
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import uuid4

Messages = Sequence[Mapping[str, str]]
OnFailure = Literal["drop", "fail"]


class HasTokens(Protocol):
    """A `tinker.ModelInput`."""

    def to_ints(self) -> list[int]: ...


class HasSampler(Protocol):
    """A `tinker.SamplingClient`."""

    def get_sampler_handle(self) -> str: ...


class HasRun(Protocol):
    """A `tinker.TrainingClient`."""

    model_id: Any


Content = str | Messages | Sequence[int] | HasTokens
PolicyLike = str | HasSampler | HasRun


@dataclass(frozen=True, slots=True)
class Prompt:
    """`content` is a text to continue as it stands, the messages of a chat, or tokens. `context` is what reward
    functions look at besides (any JSON), and `id` comes back with the group."""

    content: Content
    context: Mapping[str, object] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Reward:
    """One reward function of several whose weighted sum is the reward. A `policy` among the params (of a judge) is one
    as a batch takes it, or an object with its name."""

    name: str
    weight: float = 1.0
    params: Mapping[str, object] = field(default_factory=dict)


PromptLike = Prompt | Content | Mapping[str, object]
RewardLike = str | Reward | tuple[str, float] | tuple[str, float, Mapping[str, object]] | Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyNames:
    """Forms of a policy that leave nothing to be guessed; at most one is given."""

    base_model: str | None = None
    path: str | None = None
    sampler: str | None = None
    run: str | None = None

    def fields(self, policy: PolicyLike | None) -> dict[str, str]:
        """Raises TypeError unless policy and names are one."""
        names = {name: getattr(self, name) for name in self.__dataclass_fields__}
        given = {name: value for name, value in names.items() if value is not None}
        if (policy is not None) + len(given) != 1:
            raise TypeError("give exactly one of policy, base_model, path, sampler and run")
        return given if policy is None else policy_fields(policy)


def request_fields(
    prompts: Iterable[PromptLike],
    *,
    policy: dict[str, str],
    group_size: int,
    sampling: object,
    reward: RewardLike | Sequence[RewardLike],
    on_failure: OnFailure,
    key: str | None,
) -> dict[str, Any]:
    if isinstance(prompts, str | Mapping):
        raise TypeError("prompts must be a list of prompts, not one prompt")
    return {
        "key": key or uuid4().hex,
        "policy": policy,
        "prompts": [_prompt_fields(number, prompt) for number, prompt in enumerate(prompts)],
        "group_size": group_size,
        "sampling": _sampling_fields(sampling),
        "rewards": _rewards_fields(reward),
        "on_failure": on_failure,
    }


def policy_fields(policy: PolicyLike) -> dict[str, str]:
    """A sampling client is its sampler, a training client its run; of strings, a `tinker://` path, the id of a sampler
    or of a run, else a base model."""
    if isinstance(policy, str):
        return _named(policy)
    if hasattr(policy, "get_sampler_handle"):
        return {"sampler": json.loads(urlsafe_b64decode(policy.get_sampler_handle()))["sampling_session_id"]}
    if hasattr(policy, "model_id"):
        return {"run": str(policy.model_id)}
    if hasattr(policy, "result"):
        raise TypeError("policy is a future; take its .result() (or await it) first")
    raise TypeError(f"policy is {type(policy).__name__}; give a sampling client, a path, a run or a base model")


def _named(policy: str) -> dict[str, str]:
    if policy.startswith("tinker://"):
        return {"path": policy}
    kind = re.search(r":(train|sample):\d+$", policy)
    if kind is None:
        return {"base_model": policy}
    return {"run" if kind[1] == "train" else "sampler": policy}


def _prompt_fields(number: int, prompt: PromptLike) -> dict[str, Any]:
    if isinstance(prompt, Mapping):
        return dict(prompt)
    try:
        if isinstance(prompt, Prompt):
            return {**_content_fields(prompt.content), "context": dict(prompt.context), "id": prompt.id}
        return _content_fields(prompt)
    except TypeError as error:
        raise TypeError(f"prompts[{number}] must be a text, messages or token ids: {error}") from None


def _content_fields(content: Content) -> dict[str, Any]:
    if isinstance(content, str):
        return {"text": content}
    items: list[Any] = list(content.to_ints() if hasattr(content, "to_ints") else content)
    if items and all(isinstance(item, Mapping) for item in items):
        return {"messages": [dict(item) for item in items]}
    return {"tokens": [operator.index(item) for item in items]}


def _sampling_fields(sampling: Any) -> dict[str, Any]:
    if isinstance(sampling, Mapping):
        return dict(sampling)
    if hasattr(sampling, "model_dump"):
        return dict(sampling.model_dump(exclude_none=True))
    raise TypeError(f"sampling is {type(sampling).__name__}; give a dict or a tinker.SamplingParams")


def _rewards_fields(reward: Any) -> list[dict[str, Any]]:
    one = isinstance(reward, str | Reward | Mapping)
    return [_reward_fields(each) for each in ([reward] if one else reward)]


def _reward_fields(reward: Any) -> dict[str, Any]:
    if isinstance(reward, Mapping):
        return dict(reward)
    parts = (reward,) if isinstance(reward, str) else reward
    full = Reward(*parts) if isinstance(parts, tuple) else parts
    if not isinstance(full, Reward):
        raise TypeError(f"a reward is {type(reward).__name__}; give its name, or (name, weight, params)")
    return {"name": full.name, "weight": full.weight, "params": _params_fields(full.params)}


def _params_fields(params: Mapping[str, Any]) -> dict[str, Any]:
    """A judge's policy may be said in all the ways that a batch's may."""
    fields = dict(params)
    if not isinstance(policy := fields.get("policy", {}), Mapping):
        fields["policy"] = policy_fields(policy)
    return fields
