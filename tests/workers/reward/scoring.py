"""Ops to be scored, and sandboxes to score them in."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import RewardOp, ScoreTexts
from openrl.ledger.port import Held
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.nursery import Nursery
from workers.reward.sandbox.walls import lacking


def held(
    reward: str,
    texts: Sequence[str],
    contexts: Sequence[dict[str, Any]] | None = None,
    *,
    attempt: int = 1,
    op: str = "op",
    **params: Any,
) -> Held:
    """A claimed op, its words as the client sends them."""
    action = ScoreTexts(
        reward=reward,
        texts=tuple(texts),
        contexts=tuple(map(_words, contexts if contexts is not None else [{}] * len(texts))),
        params=_words(params),
    )
    return Held(op=RewardOp(id=OpId(op), tenant=TenantId("t"), action=action), epoch=1, attempt=attempt)


def _words(values: dict[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def nursery_of(level: Level) -> Nursery:
    if why := lacking(level):
        pytest.skip(f"{level}: {why}")
    return Nursery(level)
