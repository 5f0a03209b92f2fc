"""The parameters of a judge, and what it comes to ask."""

import json
import tracemalloc

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.judge import Said
from openrl.testing import TOY_CARD
from openrl.wire.base import read_json
from openrl.wire.judge import ASKED_CHARS, MOST_PLACES, judge_of, to_questions
from openrl.wire.rollouts import RolloutRequest

PARAMS = {"policy": {"base_model": "toy"}, "text": "{{completion}}?", "sampling": {"max_tokens": 4}}


def request(params, prompts=({"text": "A"},), **fields):
    body = {
        "key": "12345678",
        "policy": {"base_model": "toy"},
        "prompts": list(prompts),
        "group_size": 2,
        "sampling": {"max_tokens": 3},
        "rewards": [{"name": "exact"}, {"name": "judge", "params": params}],
    }
    return read_json(RolloutRequest, json.dumps(body | fields).encode())


def questions(params, prompts=({"text": "A"},), **fields):
    params = PARAMS | params
    if "messages" in params:
        del params["text"]
    wanted = request(params, prompts, **fields)
    return to_questions(judge_of(wanted), wanted, TOY_CARD, None, [OpId(f"o{at}") for at, _ in enumerate(prompts)])


def test_a_request_may_ask_no_judge():
    assert judge_of(request(PARAMS, rewards="exact")) is None


def test_words_of_the_request_are_put_in_and_the_completions_places_are_left_open():
    text = "{{ prompt }} | {{context.answer}} | {{completion}} | {x} | {{completion}}."
    prompts = [
        {"text": "A {{completion}}", "context": {"answer": [7]}},
        {"text": "B", "context": {"answer": "{{prompt}}"}},
    ]
    first, second = questions({"text": text}, prompts)
    assert first.text == ("A {{completion}} | [7] | ", " | {x} | ", "."), "words are no templates"
    assert second.text == ("B | {{prompt}} | ", " | {x} | ", ".")
    assert (first.of, second.of, first.reward, first.answers, first.where) == ("o0", "o1", 1, 1, "rewards[1].params")
    assert (first.params.max_tokens, first.params.temperature, first.params.seed) == (4, 0.0, None)


def test_messages_are_asked_and_shown():
    said = [{"role": "system", "content": "Be fair."}, {"role": "user", "content": "{{prompt}}: {{completion}}"}]
    chat = [{"role": "user", "content": "3 + 4?"}, {"role": "assistant", "content": "7"}]
    lone, several = questions({"messages": said}, [{"messages": chat[:1]}, {"messages": chat}])
    assert lone.messages[1] == Said(role="user", pieces=("3 + 4?: ", ""))
    assert lone.messages[0] == Said(role="system", pieces=("Be fair.",)) and lone.text == ()
    assert several.messages[1].pieces == ("user: 3 + 4?\nassistant: 7: ", "")


def test_only_what_reads_the_answers_goes_along_with_them():
    params = {"pattern": "(x)", "labels": {"x": 1}, "answers": 2, "sampling": {"max_tokens": 4, "temperature": 1}}
    reading = judge_of(request(PARAMS | params)).reading
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
        ({"sampling": {"max_tokens": 4, "top_k": 0}}, "sampling.top_k: is 0"),
        ({"sampling": {"max_tokens": 1000}}, "sampling.max_tokens: "),
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
def test_a_wrong_parameter_is_refused_by_its_name(params, problem):
    given = {name: value for name, value in (PARAMS | params).items() if value is not None}
    with pytest.raises(FieldInvalid) as caught:
        questions_of(given)
    assert str(caught.value).startswith(f"rewards[1].params.{problem}")


def questions_of(params):
    wanted = request(params)
    return to_questions(judge_of(wanted), wanted, TOY_CARD, None, [OpId("o")])


@pytest.mark.parametrize(
    ("text", "prompts", "problem"),
    [
        (
            "{{completion}} {{context.answer}}",
            [{"text": "A", "context": {"answer": 1}}, {"text": "B"}],
            "prompts[1].context: has no 'answer', which rewards[1].params.text asks for",
        ),
        (
            "{{completion}} {{prompt}}",
            [{"tokens": [1]}],
            "prompts[0].tokens: tokens cannot fill {{prompt}} of rewards[1].params.text; send text or messages",
        ),
    ],
)
def test_what_a_question_needs_must_be_there(text, prompts, problem):
    with pytest.raises(FieldInvalid) as caught:
        questions({"text": text}, prompts)
    assert str(caught.value) == problem
    assert questions({}, [{"tokens": [1]}])[0].text == ("", "?")


def test_questions_are_bounded():
    sampling = {"max_tokens": 4, "temperature": 1}
    with pytest.raises(FieldInvalid, match=r"params\.answers: 16 answers to each of 100 rollouts are more than 1024"):
        questions({"answers": 16, "sampling": sampling}, group_size=100)
    many = [{"text": "A"}] * 3000
    with pytest.raises(FieldInvalid, match=rf"params\.text: asks more than {ASKED_CHARS} characters in all"):
        questions({"text": "{{completion}}" + "a" * 30_000}, many)


def test_what_a_question_would_be_is_bounded_before_it_is_put_together():
    tracemalloc.start()
    try:
        with pytest.raises(FieldInvalid, match=rf"params\.text: asks more than {ASKED_CHARS} characters in all"):
            questions({"text": "{{completion}}" + "{{prompt}}" * 300}, [{"text": "A" * 1_000_000}])
        assert tracemalloc.get_traced_memory()[1] < 3 * ASKED_CHARS
    finally:
        tracemalloc.stop()


def test_what_opens_many_places_and_closes_none_is_no_work():
    asked = questions({"text": "{{completion}}" + "{{" * 15_000}, [{"text": "A"}] * 100)
    assert asked[-1].text == ("", "{{" * 15_000), "in an hour, if each place looked for its end"


def test_a_completion_stands_in_a_question_so_many_times_at_most():
    assert len(questions({"text": "{{completion}}" * MOST_PLACES})[0].text) == MOST_PLACES + 1
    with pytest.raises(FieldInvalid, match=r"params.text: has 17 places for the completion; at most 16"):
        questions({"text": "{{completion}}" * (MOST_PLACES + 1)})
