"""Rollouts: what is sampled for a prompt and how it is scored, one group of a batch at a time."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final

from openrl.domain.ids import DepotKey, OpId
from openrl.domain.sampling import SamplingParams, Sequence
from openrl.domain.tensor import Tensor

MOST_MEMBERS: Final = 10_000  #: ops that one op may wait for


class OnFailure(StrEnum):
    """What becomes of an op when one of those it waits for fails."""

    FAIL = "fail"  #: it fails too, at once
    RUN = "run"  #: it runs when all have settled, and reads how they ended


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """The members of a join: ops of the same tenant that must have settled before this one runs."""

    ops: tuple[OpId, ...]
    on_failure: OnFailure = OnFailure.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollOut:
    """Continue one prompt several times and tell the texts. The prompt is exactly one of tokens, text and messages."""

    kind: ClassVar[str] = "roll_out"
    base_model: str  #: canonical
    policy: DepotKey | None  #: None samples the base model
    number: int  #: of the group in its batch
    num_samples: int
    params: SamplingParams
    tokens: Tensor | None = None  #: int32 [P]
    text: str | None = None
    messages: tuple[Message, ...] = ()

    @property
    def where(self) -> str:
        """The prompt, as the request's errors name it."""
        return f"prompts[{self.number}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One reward function of several whose weighted sum is the reward."""

    name: str
    weight: float = 1.0
    params: dict[str, str] = field(default_factory=dict)
    answers: OpId | None = None  #: the judge's op, a member of the join: its answers are scored in place of the texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreGroup:
    """Score every text that a RollOut sampled."""

    kind: ClassVar[str] = "score_group"
    of: OpId  #: the RollOut, a member of this op's join
    samples: int  #: that it was asked for
    rewards: tuple[RewardPart, ...]
    context: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOut:
    kind: ClassVar[str] = "rolled_out"
    prompt: Tensor  #: int32 [P], as it was sampled from
    sequences: tuple[Sequence, ...]
    texts: tuple[str, ...]  #: without the tokenizer's special tokens
    queued_seconds: float
    sampled_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    sample: int
    reward: float  #: sum of weight times value
    parts: dict[str, float] = field(default_factory=dict)  #: by reward function, and `function.part` of what it tells
    info: dict[str, str] = field(default_factory=dict)  #: likewise, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A rollout that could not be sampled or scored."""

    sample: int
    error: str  #: class name of the domain error, by which they are counted
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What a group's result adds to the numbers of its batch."""

    add: dict[str, float] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    kind: ClassVar[str] = "graded"
    grades: tuple[Grade, ...]
    dropped: tuple[Dropped, ...]
    scored_seconds: float

    @property
    def sums(self) -> Sums:
        """`done` and `dropped` rollouts, `dropped:ERROR`; of the rewards `sum`, `squares`, `min` and `max`; the sum and
        the count of each part as `part:NAME` and `parts:NAME`."""
        rewards = [grade.reward for grade in self.grades]
        add = {"done": float(len(rewards)), "dropped": float(len(self.dropped))}
        add |= {"sum": sum(rewards), "squares": sum(reward * reward for reward in rewards)}
        for error in (dropped.error for dropped in self.dropped):
            add[f"dropped:{error}"] = add.get(f"dropped:{error}", 0.0) + 1
        for name, value in (part for grade in self.grades for part in grade.parts.items()):
            add[f"part:{name}"] = add.get(f"part:{name}", 0.0) + value
            add[f"parts:{name}"] = add.get(f"parts:{name}", 0.0) + 1
        bound = {"min": min(rewards)} if rewards else {}
        return Sums(add=add, least=bound, most={"max": max(rewards)} if rewards else {})
