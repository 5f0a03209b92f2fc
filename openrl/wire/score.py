"""OpenRL's own requests: texts to score with a reward function."""

from typing import Annotated

from pydantic import Field

from openrl.domain.errors import FieldInvalid
from openrl.domain.op import ScoreTexts
from openrl.wire.base import Wire
from openrl.wire.judge import NAME as JUDGE

MOST_TEXTS = 10_000


class ScoreRequest(Wire):
    key: Annotated[str, Field(min_length=8, max_length=200)]
    """Made by the client, new for every new request: a resend with the same key is the same operation."""
    reward: Annotated[str, Field(min_length=1, max_length=200)]
    texts: Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=MOST_TEXTS)]
    contexts: Annotated[list[dict[str, str]], Field(fail_fast=True, max_length=MOST_TEXTS)] | None = None
    params: dict[str, str] = Field(default_factory=dict)


def to_score(request: ScoreRequest) -> ScoreTexts:
    """Raises FieldInvalid."""
    if request.reward == JUDGE:
        raise FieldInvalid("reward", f"{JUDGE} is asked about rollouts only; name it in a request for rollouts")
    texts = tuple(request.texts)
    contexts = tuple(request.contexts if request.contexts is not None else ({} for _ in texts))
    if len(contexts) != len(texts):
        raise FieldInvalid("contexts", f"has {len(contexts)} entries for {len(texts)} texts; send one for each text")
    return ScoreTexts(reward=request.reward, texts=texts, contexts=contexts, params=request.params)
