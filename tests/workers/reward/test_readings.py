"""What reward functions score of each rollout: its text, or a judge's answers."""

import pytest

from openrl.domain.errors import OpNotFound
from openrl.domain.ids import OpId, TenantId
from openrl.domain.judge import Answers, Judged
from openrl.domain.op import Status
from openrl.domain.outcome import Category, Failure, Record
from openrl.domain.rollout import Dropped, RewardPart
from workers.reward.readings import readings

JUDGE = RewardPart(name="judge", answers=OpId("j"))
TEXTS = ("a", "b", "c")


def record(judged: Judged | None) -> Record:
    failure = None if judged else Failure(error="FieldInvalid", message="no template", category=Category.USER)
    status = Status.DONE if judged else Status.FAILED
    return Record(
        id=OpId("j"), tenant=TenantId("t"), kind="ask_judge", status=status, attempts=1, result=judged, failure=failure
    )


def test_a_judges_answers_stand_in_place_of_the_texts() -> None:
    lost = Dropped(sample=1, error="FieldInvalid", reason="too long")
    said = Judged(answers=(Answers(sample=2, texts=("é", "y")), Answers(sample=0, texts=("x",))), dropped=(lost,))
    texts, answers = readings([RewardPart(name="exact"), JUDGE], TEXTS, lambda op: record(said))
    assert texts == list(TEXTS)
    assert answers == ['["x"]', Dropped(sample=1, error="FieldInvalid", reason="judge: too long"), '["\\u00e9", "y"]']


def test_a_judge_that_failed_drops_all_with_its_reason() -> None:
    (answers,) = readings([JUDGE], TEXTS, lambda op: record(None))
    assert answers == [Dropped(sample=at, error="FieldInvalid", reason="judge: no template") for at in range(3)]


def test_a_judge_that_is_gone_is_an_error() -> None:
    with pytest.raises(OpNotFound):
        readings([JUDGE], TEXTS, lambda op: None)
