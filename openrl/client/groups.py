"""What a batch of rollouts answers: groups as they finish, and how the batch stands."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

Status = Literal["running", "done", "cancelled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One continuation of a prompt, with its reward."""

    sample: int  #: its number in the group
    tokens: tuple[int, ...]  #: the prompt's not among them
    logprobs: tuple[float, ...]  #: of each token, under the policy that sampled it
    text: str  #: without special tokens
    stop_reason: str  #: `stop` or `length`
    reward: float  #: sum of weight times value over the reward functions
    parts: Mapping[str, float]  #: value by reward function, and `function.part` of what it tells besides
    info: Mapping[str, str]  #: likewise, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A rollout that could not be sampled or scored."""

    sample: int
    error: str  #: by which they are counted
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    queued_seconds: float
    sampled_seconds: float
    scored_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All rollouts of one prompt."""

    index: int  #: of the prompt in the request
    id: str  #: that the prompt was given; empty for none
    prompt_tokens: tuple[int, ...]  #: as it was sampled from; empty where nothing was
    rollouts: tuple[Rollout, ...]  #: those that have a reward
    dropped: tuple[Dropped, ...]
    policy: str
    timings: Timings

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(rollout.reward for rollout in self.rollouts)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Group":
        return cls(
            index=fields["index"],
            id=fields["id"],
            prompt_tokens=tuple(fields["prompt_tokens"]),
            rollouts=tuple(map(_rollout, fields["rollouts"])),
            dropped=tuple(Dropped(**_only(Dropped, each)) for each in fields["dropped"]),
            policy=fields["policy"],
            timings=Timings(**_only(Timings, fields["timings"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSummary:
    """Over all rollouts scored so far; None where there is none."""

    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    parts: Mapping[str, float]  #: means


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    id: str
    status: Status
    created_at: datetime
    groups: int
    groups_done: int
    group_size: int
    asked: int  #: rollouts, as the following
    done: int
    dropped: int
    dropped_by_reason: Mapping[str, int]
    reward: RewardSummary
    policy: str
    base_model: str
    queue_reason: str | None  #: why what is left is not being sampled yet, where that is known
    queue_seconds: float | None  #: for about how long not

    @property
    def over(self) -> bool:
        return self.status != "running"

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "BatchState":
        counts, queue = fields["rollouts"], fields["queue"]
        return cls(
            id=fields["batch_id"],
            status=fields["status"],
            created_at=datetime.fromisoformat(fields["created_at"]),
            groups=fields["groups"],
            groups_done=fields["groups_done"],
            group_size=fields["group_size"],
            asked=counts["asked"],
            done=counts["done"],
            dropped=counts["dropped"],
            dropped_by_reason=fields["dropped_by_reason"],
            reward=RewardSummary(**_only(RewardSummary, fields["reward"])),
            policy=fields["policy"]["name"],
            base_model=fields["policy"]["base_model"],
            queue_reason=queue.get("reason"),
            queue_seconds=queue.get("seconds"),
        )


def _rollout(fields: Mapping[str, Any]) -> Rollout:
    told = _only(Rollout, fields)
    return Rollout(**{**told, "tokens": tuple(told["tokens"]), "logprobs": tuple(told["logprobs"])})


def _only(shape: type[Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """A newer server may tell more."""
    return {each.name: told[each.name] for each in fields(shape)}
