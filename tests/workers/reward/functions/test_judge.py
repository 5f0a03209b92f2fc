"""Answers of a judge read as scores; what cannot be read is an error and never a zero."""

import json
from typing import Any

import pytest

from openrl.domain.errors import AnswerUnreadable
from openrl.rewards import RewardResult
from workers.reward.functions import judge

YES_NO = {"labels": {"yes": 1, "no": 0}}


def read(*answers: str, **params: Any) -> RewardResult:
    words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()}
    return judge.score(json.dumps(answers), {}, words)


@pytest.mark.parametrize(
    ("answer", "params", "value"),
    [
        ("7", {}, 7.0),
        (" -2.5\n", {}, -2.5),
        ("3", {"range": [0, 10]}, 3.0),
        ("Score: 8/10", {"pattern": r"(\d+)/10"}, 8.0),
        ("first 2, then 3", {"pattern": r"(\d)"}, 3.0),
        ("Yes.", YES_NO, 1.0),
        (" **no** ", YES_NO, 0.0),
        ("It is bad. Verdict: NO", YES_NO | {"pattern": r"Verdict: (\w+)"}, 0.0),
        ("+", {"labels": {"+": 1, "-": -1}}, 1.0),
        ("very good", {"labels": {"good": 1, "very good": 2}}, 2.0),
    ],
)
def test_an_answer_is_read(answer: str, params: dict[str, Any], value: float) -> None:
    result = read(answer, **params)
    assert (result.value, result.parts, result.info) == (value, {"read": 1.0}, {"answer": answer})


@pytest.mark.parametrize(
    ("answer", "params"),
    [
        ("", {}),
        ("seven", {}),
        ("8/10", {}),
        ("nan", {}),
        ("11", {"range": [0, 10]}),
        ("maybe", YES_NO),
        ("yes and no", YES_NO),
        ("", YES_NO),
        ("yes", YES_NO | {"pattern": "Verdict: (.*)"}),
        ("b", {"pattern": "(a)?b"}),
    ],
)
def test_an_answer_that_says_no_score_is_an_error(answer: str, params: dict[str, Any]) -> None:
    with pytest.raises(AnswerUnreadable, match="no score can be read in the judge's answer"):
        read(answer, **params)


def test_the_value_is_the_mean_of_the_answers_that_can_be_read() -> None:
    result = read("what?", "yes", "no", "yes", **YES_NO)
    assert (result.value, result.parts, result.info) == (2 / 3, {"read": 0.75}, {"answer": "yes"})
    with pytest.raises(AnswerUnreadable, match=r"'what\?'"):
        read("what?", "who?", **YES_NO)


def test_in_a_child_too(score: Any) -> None:
    assert score("judge", [json.dumps(["yes", ""])], labels={"yes": 1}).parts == ({"read": 0.5},)
    with pytest.raises(AnswerUnreadable, match="'never'"):
        score("judge", [json.dumps(["never"])], labels={"yes": 1})
