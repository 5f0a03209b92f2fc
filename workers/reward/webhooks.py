"""The reward `webhook`: texts scored by a server that the operator allows and the client names, over HTTP.

Runs in the worker and not in the sandbox, which has no network: texts are data here and are sent as they are. A server
that does not answer, or answers no scores, is a grader that failed.
"""

import json
import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from openrl.domain.errors import ClaimLost, Draining, GraderFailed
from openrl.domain.ids import OpId
from openrl.domain.op import RewardOp, ScoreTexts
from openrl.domain.outcome import Result
from openrl.domain.webhook import SIGNATURE, TIMESTAMP, Target, require_allowed, signature
from openrl.ledger.port import Held
from openrl.rewards import RewardResult
from workers.reward import attempts
from workers.reward.plain import WORDS, legible, plain, scores_of
from workers.reward.posting import CalledOff, Poster, PostFailed
from workers.work import Work

log = logging.getLogger(__name__)

NAME: Final = "webhook"
MOST_TEXTS: Final = 64  #: in one post
TRIES: Final = 3
PAUSE_SECONDS: Final = 0.5  #: before the second try; twice that before the third

Number = Annotated[float, Field(allow_inf_nan=False)]


class Score(BaseModel, strict=True):
    """Of one text: a value, or why there is none."""

    value: Number | None = None
    parts: dict[str, Number] = Field(default_factory=dict)
    info: dict[str, str] = Field(default_factory=dict)
    error: str | None = None


class Answer(BaseModel, strict=True):
    scores: list[Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Of the operator."""

    urls: tuple[str, ...]
    key: bytes
    max_attempts: int
    pause_seconds: float = PAUSE_SECONDS


class Webhooks:
    """A `Work` that does what asks for `webhook`; all else goes to another as it is."""

    def __init__(self, work: Work, poster: Poster, rules: Rules) -> None:
        self._work, self._poster, self._rules = work, poster, rules
        self._lock = threading.Lock()
        self._over: dict[OpId, threading.Event] = {}
        self._draining = False

    def __call__(self, held: Held) -> Result:
        op = held.op
        if not (isinstance(op, RewardOp) and isinstance(op.action, ScoreTexts) and op.action.reward == NAME):
            return self._work(held)
        outcomes = self.outcomes(held, op.action)
        for outcome in outcomes:
            if isinstance(outcome, GraderFailed):
                raise attempts.failure(outcome, held.attempt, self._rules.max_attempts)
        return scores_of([outcome for outcome in outcomes if isinstance(outcome, RewardResult)])

    def abort(self, op_id: OpId) -> None:
        with self._lock:
            over = self._over.get(op_id)
        if over is not None:
            over.set()
        self._work.abort(op_id)

    def drain(self) -> None:
        with self._lock:
            self._draining = True
            leaving = tuple(self._over.values())
        for over in leaving:
            over.set()
        self._work.drain()

    def outcomes(self, held: Held, action: ScoreTexts) -> list[RewardResult | GraderFailed]:
        """For each text its score, or why there is none. Raises FieldInvalid for a URL that is not allowed, ClaimLost,
        Draining."""
        target = require_allowed(action.params.get("url", ""), "params.url", self._rules.urls)
        outcomes: list[RewardResult | GraderFailed] = []
        with self._wanted(held.op.id) as over:
            for start in range(0, len(action.texts), MOST_TEXTS):
                places = range(start, min(start + MOST_TEXTS, len(action.texts)))
                body = _body(held.op.id, action, places)
                try:
                    outcomes += self._asked(target, body, places, over)
                except CalledOff:
                    raise (Draining() if self._draining else ClaimLost(held.op.id)) from None
        return outcomes

    @contextmanager
    def _wanted(self, op_id: OpId) -> Iterator[threading.Event]:
        with self._lock:
            if self._draining:
                raise Draining
            over = self._over[op_id] = threading.Event()
        try:
            yield over
        finally:
            with self._lock:
                del self._over[op_id]

    def _asked(
        self, target: Target, body: bytes, places: Sequence[int], over: threading.Event
    ) -> list[RewardResult | GraderFailed]:
        why = ""
        for number in range(TRIES):
            if number and over.wait(self._rules.pause_seconds * 2 ** (number - 1) * random.uniform(0.5, 1.0)):
                raise CalledOff
            try:
                return _read(self._poster.post(target, self._signed(body), body, over), target, places)
            except PostFailed as error:
                why = f"at {target} {error}"
                log.warning("the grader %s", why, extra={"action": "score", "attempt": number + 1})
                if not error.passing:
                    break
        return [GraderFailed(f"texts[{at}]", why) for at in places]

    def _signed(self, body: bytes) -> dict[str, str]:
        now = str(int(time.time()))
        return {TIMESTAMP: now, SIGNATURE: signature(self._rules.key, now, body)}


def _body(op_id: OpId, action: ScoreTexts, places: Sequence[int]) -> bytes:
    """The same for every try."""
    fields = {
        "version": 1,
        "id": f"{op_id}/{places[0]}",
        "params": {name: word for name, word in action.params.items() if name != "url"},
        "texts": [{"text": action.texts[at], "context": action.contexts[at]} for at in places],
    }
    return json.dumps(fields).encode()


def _read(body: bytes, target: Target, places: Sequence[int]) -> list[RewardResult | GraderFailed]:
    """Raises PostFailed for what are no scores of these texts."""
    try:
        scores = Answer.model_validate_json(body).scores
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "its body"
        raise PostFailed(f"answered no scores: {where}: {first['msg']}", passing=False) from None
    if len(scores) != len(places):
        raise PostFailed(f"answered {len(scores)} scores for {len(places)} texts", passing=False)
    return [_outcome(score, target, f"texts[{at}]") for at, score in zip(places, scores, strict=True)]


def _outcome(score: Score, target: Target, where: str) -> RewardResult | GraderFailed:
    if score.value is None or score.error is not None:
        why = legible(score.error or "without a reason")[:WORDS]
        return GraderFailed(where, f"at {target} could not score it: {why}")
    try:
        return RewardResult(**plain(RewardResult(score.value, score.parts, score.info)))
    except ValueError as error:
        return GraderFailed(where, f"at {target} could not score it: {error}")
