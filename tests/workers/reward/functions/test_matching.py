"""exact, regex, numeric, length, format, json_schema, math: functions that only look at the text."""

from importlib import import_module

import pytest

from openrl.rewards import FieldInvalid, RewardResult

SCHEMA = '{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}'
NESTING = '{"$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"}'


def score(name: str, text: str, context: dict[str, str], params: dict[str, str]) -> RewardResult:
    result = import_module(f"workers.reward.functions.{name}").score(text, context, params)
    return result if isinstance(result, RewardResult) else RewardResult(result)


@pytest.mark.parametrize(
    ("name", "text", "context", "params", "value"),
    [
        ("exact", " Paris\n", {"answer": "Paris"}, {}, 1.0),
        ("exact", "paris", {"answer": "Paris"}, {}, 0.0),
        ("exact", "paris", {"answer": "Paris"}, {"ignore_case": "true"}, 1.0),
        ("regex", "the answer is 42.", {}, {"pattern": r"\b42\b"}, 1.0),
        ("regex", "the answer is 421.", {"pattern": r"\b42\b"}, {"pattern": "."}, 0.0),
        ("numeric", "3 plus 4 is 7", {"answer": "7"}, {}, 1.0),
        ("numeric", "about 1,234.5 in all", {"answer": "1234.5"}, {}, 1.0),
        ("numeric", "7 is 3 plus 4", {"answer": "7"}, {}, 0.0),
        ("numeric", "3.2", {"answer": "3"}, {"tolerance": "0.5"}, 1.0),
        ("numeric", "minus four: -4", {"answer": "-4"}, {}, 1.0),
        ("numeric", "no number here", {"answer": "7"}, {}, 0.0),
        ("length", "one two three", {}, {"most": "3"}, 1.0),
        ("length", "one two three", {}, {"most": "2"}, 0.0),
        ("length", "one two three", {}, {"most": "2", "slack": "1"}, 0.5),
        ("length", "one", {}, {"least": "3", "most": "4", "slack": "3"}, 0.5),
        ("length", "abcd", {}, {"most": "4", "unit": "characters"}, 1.0),
        ("format", "<think>a</think> <answer>b</answer>", {}, {"tags": '["think", "answer"]'}, 1.0),
        ("format", "<answer>b</answer> <think>a</think>", {}, {"tags": '["think", "answer"]'}, 0.5),
        ("format", "<think>a <answer>b</answer></think>", {}, {"tags": '["think", "answer"]'}, 0.5),
        ("format", "<think>a</think><think>b</think>", {}, {"tags": '["think"]'}, 0.0),
        ("json_schema", '{"a": 1}', {"schema": SCHEMA}, {}, 1.0),
        ("json_schema", 'Here:\n```json\n{"a": 1}\n```\nDone.', {}, {"schema": SCHEMA}, 1.0),
        ("json_schema", '{"a": "1"}', {}, {"schema": SCHEMA}, 0.0),
        ("json_schema", "{", {}, {"schema": SCHEMA}, 0.0),
        ("json_schema", "[" * 100_000, {}, {"schema": SCHEMA}, 0.0),
        ("json_schema", "[" * 300 + "]" * 300, {"schema": NESTING}, {}, 0.0),
        ("json_schema", "[" * 3 + "]" * 3, {"schema": NESTING}, {}, 1.0),
        ("math", r"so the answer is $\frac{1}{2}$", {"answer": "0.5"}, {}, 1.0),
        ("math", r"\boxed{x^2 + 2x + 1}", {"answer": "$(x+1)^2$"}, {}, 1.0),
        ("math", r"\boxed{3}", {"answer": "4"}, {}, 0.0),
    ],
)
def test_a_text_is_scored(name: str, text: str, context: dict[str, str], params: dict[str, str], value: float) -> None:
    assert score(name, text, context, params).value == value


@pytest.mark.parametrize(
    ("name", "context", "params", "field"),
    [
        ("exact", {}, {}, "context.answer"),
        ("exact", {"answer": "a"}, {"ignore_case": "yes"}, "params.ignore_case"),
        ("regex", {}, {}, "params.pattern"),
        ("regex", {}, {"pattern": "("}, "params.pattern"),
        ("regex", {"pattern": "("}, {"pattern": "."}, "context.pattern"),
        ("regex", {}, {"pattern": "(" * 5000 + ")" * 5000}, "params.pattern"),
        ("regex", {}, {"pattern": "a{99999999999}"}, "params.pattern"),
        ("numeric", {"answer": "seven"}, {}, "context.answer"),
        ("numeric", {"answer": "7"}, {"tolerance": "nan"}, "params.tolerance"),
        ("numeric", {"answer": "7"}, {"tolerance": "-1"}, "params.tolerance"),
        ("length", {}, {}, "params.most"),
        ("length", {}, {"most": "1.5"}, "params.most"),
        ("length", {}, {"least": "3", "most": "2"}, "params.least"),
        ("length", {}, {"most": "3", "unit": "tokens"}, "params.unit"),
        ("format", {}, {}, "params.tags"),
        ("format", {}, {"tags": "think"}, "params.tags"),
        ("format", {"tags": "[]"}, {}, "context.tags"),
        ("format", {"tags": '["a", "a"]'}, {}, "context.tags"),
        ("json_schema", {}, {}, "params.schema"),
        ("json_schema", {"schema": '{"type": "thing"}'}, {}, "context.schema"),
        ("json_schema", {"schema": '{"$ref": "#"}'}, {}, "context.schema"),
        ("json_schema", {"schema": '{"$ref": "http://127.0.0.1:1/x"}'}, {}, "context.schema"),
        ("math", {}, {}, "context.answer"),
        ("math", {"answer": ""}, {}, "context.answer"),
    ],
)
def test_what_cannot_be_scored_is_an_error_and_no_zero(
    name: str, context: dict[str, str], params: dict[str, str], field: str
) -> None:
    with pytest.raises(FieldInvalid) as caught:
        score(name, "7", context, params)
    assert caught.value.field == field


def test_parts_tell_what_was_there() -> None:
    params = {"tags": '["think", "answer"]', "schema": SCHEMA}
    assert score("format", "<think></think>", {}, params).parts == {"think": 1.0, "answer": 0.0}
    assert score("json_schema", "{}", {}, params).parts == {"parsed": 1.0}
    assert score("json_schema", "{}", {}, params).info == {"error": "$: 'a' is a required property"}
    assert score("json_schema", "no", {}, params).parts == {"parsed": 0.0}
    assert score("math", "I do not know", {"answer": "4"}, {}).parts == {"parsed": 0.0}
