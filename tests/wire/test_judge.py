"""The parameters of a judge."""

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.wire.judge import judge_of

PARAMS = {"policy": {"base_model": "toy"}, "text": "{{completion}}?", "sampling": {"max_tokens": 4}}


def test_a_request_may_ask_no_judge(asking):
    assert judge_of(asking(PARAMS, rewards="exact")) is None


def test_only_what_reads_the_answers_goes_along_with_them(asking):
    params = {"pattern": "(x)", "labels": {"x": 1}, "answers": 2, "sampling": {"max_tokens": 4, "temperature": 1}}
    reading = judge_of(asking(PARAMS | params)).reading
    assert reading == {"pattern": "(x)", "labels": '{"x": 1}'}


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"policy": None}, "policy: "),
        ({"policy": "toy"}, "policy: "),
        ({"text": None}, "text: must be there, or else messages"),
        ({"messages": [{"role": "user", "content": "{{completion}}"}]}, "text: must be there, or else messages"),
        ({"text": "is it good?"}, "text: has no {{completion}}"),
        ({"text": "{{completion}} {{answer}}"}, "text: has {{answer}}; there are {{prompt}}"),
        ({"text": "{{completion}} {{context.}}"}, "text: has {{context.}}"),
        ({"sampling": {}}, "sampling.max_tokens: is missing"),
        ({"answers": 2}, "answers: is 2, but at temperature 0 all answers are the same"),
        ({"answers": 17}, "answers: "),
        ({"pattern": "("}, "pattern: '(' is not a regular expression"),
        ({"pattern": "a"}, "pattern: has 0 groups"),
        ({"pattern": "(a)(b)"}, "pattern: has 2 groups"),
        ({"labels": {}}, "labels: "),
        ({"labels": {"yes": "1"}}, "labels.yes: "),
        ({"labels": {"yes": 1, "YES ": 0}}, "labels: has two that are the same"),
        ({"labels": {" ": 1}}, "labels: has one without"),
        ({"labels": {"yes": 1}, "range": [0, 1]}, "range: is of numbers"),
        ({"range": [1, 0]}, "range: is [1.0, 0.0]"),
        ({"range": [1]}, "range: "),
        ({"seed": 1}, "seed: is not a field"),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_name(asking, params, problem):
    given = {name: value for name, value in (PARAMS | params).items() if value is not None}
    with pytest.raises(FieldInvalid) as caught:
        judge_of(asking(given))
    assert str(caught.value).startswith(f"rewards[1].params.{problem}")
