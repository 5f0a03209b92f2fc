"""Judges: a model that is asked about every text that a RollOut sampled. A reward function reads its answers."""

from dataclasses import dataclass
from typing import ClassVar

from openrl.domain.ids import DepotKey, OpId
from openrl.domain.rollout import Dropped
from openrl.domain.sampling import SamplingParams

#: A text in pieces: what is asked about stands between each and the next.
Pieces = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message of the chat that asks."""

    role: str
    pieces: Pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class AskJudge:
    """Ask about each text of a RollOut, with one prompt for each. The prompt is exactly one of text and messages."""

    kind: ClassVar[str] = "ask_judge"
    of: OpId  #: the RollOut, a member of this op's join
    reward: int  #: which of the request's rewards asks
    base_model: str  #: canonical
    policy: DepotKey | None  #: None samples the base model
    answers: int  #: to each question
    params: SamplingParams
    text: Pieces = ()
    messages: tuple[Said, ...] = ()

    @property
    def where(self) -> str:
        """The judge's parameters, as the request's errors name them."""
        return f"rewards[{self.reward}].params"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the judge says of one text, in words; nothing is read out of them yet."""

    sample: int
    texts: tuple[str, ...]  #: without the tokenizer's special tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    kind: ClassVar[str] = "judged"
    answers: tuple[Answers, ...]
    dropped: tuple[Dropped, ...]  #: texts that it could not be asked about
