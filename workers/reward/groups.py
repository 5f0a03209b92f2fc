"""Groups of rollouts, scored: every text by every reward function asked for, with the work that scores texts.

A text that cannot be scored is tried once more where that may help, and then dropped with its reason. It is never a
zero, and does not cost the other texts their scores.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from openrl.domain.errors import CallerError, ClaimLost, Draining, FieldInvalid, GraderFailed, GraderOverdue, OpNotFound
from openrl.domain.ids import OpId
from openrl.domain.op import RewardOp, ScoreTexts
from openrl.domain.outcome import Record, Result, Scores
from openrl.domain.rollout import Dropped, Grade, Graded, RewardPart, RolledOut, ScoreGroup
from openrl.ledger.port import Held
from openrl.rewards import RewardResult
from workers.reward.plain import MOST, scores_of
from workers.reward.readings import Reading, readings
from workers.work import Work

Told = TypeVar("Told")
Found = Reading | Scores | Exception
AtOnce = Callable[[Held, ScoreTexts], Sequence[RewardResult | GraderFailed]]

log = logging.getLogger(__name__)

TRIES: Final = 2  #: of one text with one function
GROUP_SECONDS: Final = 45.0  #: after so many no more texts of a group are begun


class Groups:
    """A `Work` that does ScoreGroups with one that does ScoreTexts, to which all else goes as it is. `read` answers
    what the ledger knows of an op; functions of `at_once` score all texts of a group together."""

    def __init__(
        self,
        work: Work,
        read: Callable[[OpId], Record | None],
        at_once: Mapping[str, AtOnce] | None = None,
        *,
        group_seconds: float = GROUP_SECONDS,
    ) -> None:
        self._work, self._read, self._group_seconds = work, read, group_seconds
        self._at_once = at_once or {}

    def __call__(self, held: Held) -> Result:
        op = held.op
        if not (isinstance(op, RewardOp) and isinstance(op.action, ScoreGroup)):
            return self._work(held)
        began = time.monotonic()
        sampled = self._read(op.action.of)
        if sampled is None:
            raise OpNotFound(op.action.of)
        if not isinstance(sampled.result, RolledOut):
            return _none(op.action, sampled)
        columns = self._columns(held, op.action, sampled.result.texts)
        outcomes = [
            self._outcome(held, op.action, sample, found, began + self._group_seconds)
            for sample, found in enumerate(zip(*columns, strict=True))
        ]
        return Graded(
            grades=tuple(outcome for outcome in outcomes if isinstance(outcome, Grade)),
            dropped=tuple(outcome for outcome in outcomes if isinstance(outcome, Dropped)),
            scored_seconds=time.monotonic() - began,
        )

    def abort(self, op_id: OpId) -> None:
        self._work.abort(op_id)

    def drain(self) -> None:
        self._work.drain()

    def _columns(self, held: Held, action: ScoreGroup, texts: tuple[str, ...]) -> list[Sequence[Found]]:
        """For each reward function, what there is to be scored of each rollout, or what came of it already."""
        return [
            self._together(held, action, reward, texts) if reward.name in self._at_once else read
            for reward, read in zip(action.rewards, readings(action.rewards, texts, self._read), strict=True)
        ]

    def _together(
        self, held: Held, group: ScoreGroup, reward: RewardPart, texts: tuple[str, ...]
    ) -> Sequence[Scores | Exception]:
        contexts = (group.context,) * len(texts)
        action = ScoreTexts(reward=reward.name, texts=texts, contexts=contexts, params=reward.params)
        try:
            outcomes = self._at_once[reward.name](held, action)
        except (ClaimLost, Draining):
            raise
        except Exception as error:  # costs these texts, and no other op
            return [error] * len(texts)
        return [scores_of([each]) if isinstance(each, RewardResult) else each for each in outcomes]

    def _outcome(
        self, held: Held, action: ScoreGroup, sample: int, found: Sequence[Found], until: float
    ) -> Grade | Dropped:
        """`found` has something of each reward function."""
        grade = Grade(sample=sample, reward=0.0)
        for number, (reward, each) in enumerate(zip(action.rewards, found, strict=True)):
            if isinstance(each, Dropped):
                return each
            if isinstance(each, str) and time.monotonic() > until:
                overdue = GraderOverdue(reward.name, self._group_seconds)
                return Dropped(sample=sample, error=type(overdue).__name__, reason=str(overdue))
            try:
                grade = _added(grade, reward, self._scores(held, reward, each, action.context))
            except (ClaimLost, Draining):
                raise
            except Exception as error:  # whatever a function died of costs this text, and no other
                return Dropped(sample=sample, error=type(error).__name__, reason=_reason(number, reward, error))
        return grade

    def _scores(
        self, held: Held, reward: RewardPart, found: str | Scores | Exception, context: dict[str, str]
    ) -> Scores:
        if isinstance(found, Scores):
            return found
        if isinstance(found, Exception):
            raise found
        assert isinstance(held.op, RewardOp)
        action = ScoreTexts(reward=reward.name, texts=(found,), contexts=(context,), params=reward.params)
        alone = replace(held, op=replace(held.op, action=action))
        for tries_left in reversed(range(TRIES)):
            try:
                scores = self._work(alone)
                assert isinstance(scores, Scores)
                return scores
            except (CallerError, ClaimLost, Draining):
                raise
            except Exception as error:
                if not tries_left:
                    raise
                log.warning("%s: %s; once more", reward.name, error, extra={"action": "score", "op": held.op.id})
        raise AssertionError("a last try answers or raises")


def _added(grade: Grade, reward: RewardPart, scores: Scores) -> Grade:
    """The grade with what one function says of its text. Raises FieldInvalid where a batch's sums could not hold it."""
    told = {f"{reward.name}.{name}": value for name, value in _first(scores.parts).items()}
    parts = grade.parts | {reward.name: scores.values[0]} | told
    info = {f"{reward.name}.{name}": word for name, word in _first(scores.info).items()}
    total = grade.reward + reward.weight * scores.values[0]
    if not abs(total) <= MOST:
        raise FieldInvalid("weight", f"{reward.weight:g} makes the reward {total:g}, which is beyond {MOST:g}")
    return replace(grade, reward=total, parts=parts, info=grade.info | info)


def _first(told: Sequence[dict[str, Told]]) -> dict[str, Told]:
    return told[0] if told else {}


def _none(action: ScoreGroup, sampled: Record) -> Graded:
    """Nothing was sampled, so nothing can be scored."""
    failure = sampled.failure
    assert failure is not None, f"{sampled.id} is {sampled.status} without rollouts"
    dropped = tuple(
        Dropped(sample=sample, error=failure.error, reason=failure.message) for sample in range(action.samples)
    )
    return Graded(grades=(), dropped=dropped, scored_seconds=0.0)


def _reason(number: int, reward: RewardPart, error: Exception) -> str:
    """In the names that a request for rollouts has for its fields."""
    if not isinstance(error, FieldInvalid):
        return f"{reward.name}: {error}"
    field = error.field.replace("contexts[].", "context.", 1).replace("contexts[0].", "context.", 1)
    field = f"rewards[{number}].weight" if field == "weight" else field
    field = field.replace("params.", f"rewards[{number}].params.", 1).replace("texts[0]", "text", 1)
    return f"{reward.name}: {field}: {error.problem}"
