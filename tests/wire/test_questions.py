"""What a judge comes to ask."""

import tracemalloc

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.judge import Said
from openrl.testing import TOY_CARD
from openrl.wire.judge import MOST_PLACES, judge_of
from openrl.wire.questions import ASKED_CHARS, to_questions

PARAMS = {"policy": {"base_model": "toy"}, "text": "{{completion}}?", "sampling": {"max_tokens": 4}}


@pytest.fixture
def questions(asking):
    """Makes a request and answers what its judge is asked."""

    def questions(params, prompts=({"text": "A"},), **fields):
        params = PARAMS | params
        if "messages" in params:
            del params["text"]
        wanted = asking(params, prompts, **fields)
        return to_questions(judge_of(wanted), wanted, TOY_CARD, None, [OpId(f"o{at}") for at, _ in enumerate(prompts)])

    return questions


def test_words_of_the_request_are_put_in_and_the_completions_places_are_left_open(questions):
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


def test_messages_are_asked_and_shown(questions):
    said = [{"role": "system", "content": "Be fair."}, {"role": "user", "content": "{{prompt}}: {{completion}}"}]
    chat = [{"role": "user", "content": "3 + 4?"}, {"role": "assistant", "content": "7"}]
    lone, several = questions({"messages": said}, [{"messages": chat[:1]}, {"messages": chat}])
    assert lone.messages[1] == Said(role="user", pieces=("3 + 4?: ", ""))
    assert lone.messages[0] == Said(role="system", pieces=("Be fair.",)) and lone.text == ()
    assert several.messages[1].pieces == ("user: 3 + 4?\nassistant: 7: ", "")


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [({"max_tokens": 4, "top_k": 0}, "top_k: is 0"), ({"max_tokens": 1000}, "max_tokens: ")],
)
def test_how_answers_are_drawn_must_fit_the_judge(questions, sampling, problem):
    with pytest.raises(FieldInvalid) as caught:
        questions({"sampling": sampling})
    assert str(caught.value).startswith(f"rewards[1].params.sampling.{problem}")


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
def test_what_a_question_needs_must_be_there(questions, text, prompts, problem):
    with pytest.raises(FieldInvalid) as caught:
        questions({"text": text}, prompts)
    assert str(caught.value) == problem
    assert questions({}, [{"tokens": [1]}])[0].text == ("", "?")


def test_questions_are_bounded(questions):
    sampling = {"max_tokens": 4, "temperature": 1}
    with pytest.raises(FieldInvalid, match=r"params\.answers: 16 answers to each of 100 rollouts are more than 1024"):
        questions({"answers": 16, "sampling": sampling}, group_size=100)
    many = [{"text": "A"}] * 3000
    with pytest.raises(FieldInvalid, match=rf"params\.text: asks more than {ASKED_CHARS} characters in all"):
        questions({"text": "{{completion}}" + "a" * 30_000}, many)


def test_what_a_question_would_be_is_bounded_before_it_is_put_together(questions):
    tracemalloc.start()
    try:
        with pytest.raises(FieldInvalid, match=rf"params\.text: asks more than {ASKED_CHARS} characters in all"):
            questions({"text": "{{completion}}" + "{{prompt}}" * 300}, [{"text": "A" * 1_000_000}])
        assert tracemalloc.get_traced_memory()[1] < 3 * ASKED_CHARS
    finally:
        tracemalloc.stop()


def test_what_opens_many_places_and_closes_none_is_no_work(questions):
    asked = questions({"text": "{{completion}}" + "{{" * 15_000}, [{"text": "A"}] * 100)
    assert asked[-1].text == ("", "{{" * 15_000), "in an hour, if each place looked for its end"


def test_a_completion_stands_in_a_question_so_many_times_at_most(questions):
    assert len(questions({"text": "{{completion}}" * MOST_PLACES})[0].text) == MOST_PLACES + 1
    with pytest.raises(FieldInvalid, match=r"params.text: has 17 places for the completion; at most 16"):
        questions({"text": "{{completion}}" * (MOST_PLACES + 1)})
