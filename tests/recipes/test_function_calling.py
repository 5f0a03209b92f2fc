import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "recipes" / "function_calling"
CALL: dict[str, Any] = {"name": "heat", "arguments": {"room": "hall", "degrees": 3, "loud": True}}
NO_CALL = "No function fits."


@pytest.fixture(scope="module")
def task() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import calls

        yield calls


@pytest.fixture(scope="module")
def learned(task: ModuleType) -> list[Any]:
    rng = random.Random(1)
    return [task.draw(rng) for _ in range(3000)]


@pytest.fixture(scope="module")
def tested(task: ModuleType) -> list[Any]:
    return list(task.held_out(600))


# --- what is drawn ----------------------------------------------------------------------------------------------------


def names(task: ModuleType, tools: Any) -> set[str]:
    return {style(name) for tool in tools for name in tool.names.split() for style in (str, task._camel)}


def offered(example: Any) -> set[str]:
    return {json.loads(definition)["name"] for definition in example.definitions}


def strings(example: Any) -> set[str]:
    call = example.call or {"arguments": {}}
    return {value for value in call["arguments"].values() if isinstance(value, str)}


def test_a_seed_always_draws_the_same_and_tests_are_the_same(task: ModuleType) -> None:
    drawn = [[task.draw(rng) for _ in range(20)] for rng in (random.Random(7), random.Random(7), random.Random(8))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert task.held_out(12) == task.held_out(30)[:12]


def test_no_unseen_tool_is_learned_from(task: ModuleType, learned: list[Any], tested: list[Any]) -> None:
    seen = {name for example in learned for name in offered(example)}
    unseen = {name for example in tested if example.kind != "unseen_wording" for name in offered(example)}
    assert seen == names(task, task.TOOLS)
    assert unseen == names(task, task.UNSEEN_TOOLS)
    assert not seen & unseen


def test_no_wording_of_a_test_is_learned_from(task: ModuleType) -> None:
    learned = {wording for tool in task.TOOLS for wording in tool.wordings} | set(task.SMALL_TALK)
    tested = {wording for tool in task.TOOLS for wording in tool.unseen_wordings}
    tested |= {wording for tool in task.UNSEEN_TOOLS for wording in tool.wordings} | set(task.UNSEEN_SMALL_TALK)
    assert not learned & tested
    assert all(tool.unseen_wordings for tool in task.TOOLS)


def test_requests_of_tests_never_occur_in_training(learned: list[Any], tested: list[Any]) -> None:
    assert not {example.request for example in learned} & {example.request for example in tested}


def test_strings_of_tests_never_occur_as_arguments_in_training(
    task: ModuleType, learned: list[Any], tested: list[Any]
) -> None:
    """Of the same tool: two tools may know the same strings."""
    for tool in task.TOOLS:
        mine = names(task, [tool])
        choices = {value for parameter in tool.parameters.values() for value in parameter.type.split("|")}
        seen, unseen = (
            {value for one in examples if one.call and one.call["name"] in mine for value in strings(one)} - choices
            for examples in (learned, tested)
        )
        assert not seen & unseen
        assert bool(seen) == bool(unseen) == any(one.type == "string" for one in tool.parameters.values())


def test_a_call_is_of_a_function_that_is_offered_with_arguments_of_its_types(
    learned: list[Any], tested: list[Any]
) -> None:
    types = {"string": str, "integer": int, "number": float, "boolean": bool}
    for example in learned + tested:
        definitions = {one["name"]: one for one in map(json.loads, example.definitions)}
        assert len(definitions) == len(example.definitions) >= 2
        if example.call is None:
            continue
        parameters = definitions[example.call["name"]]["parameters"]
        for name, value in example.call["arguments"].items():
            assert type(value) is types.get(parameters[name], str)
            assert parameters[name] in types or value in parameters[name].split("|")


def test_a_request_says_all_that_its_call_does(learned: list[Any], tested: list[Any]) -> None:
    for example in learned + tested:
        for value in example.call["arguments"].values() if example.call else ():
            assert isinstance(value, bool) or re.search(rf"(?i)(?<!\w){re.escape(str(value))}(?!\w)", example.request)


def test_true_and_false_are_said_differently(task: ModuleType) -> None:
    for tool in (*task.TOOLS, *task.UNSEEN_TOOLS):
        for wording in (*tool.wordings, *tool.unseen_wordings):
            for key, when_true, when_false in task.SLOT.findall(wording):
                boolean = tool.parameters[key].type == "boolean"
                assert (when_true != when_false) is boolean, wording


def test_parameters_of_one_definition_have_names_of_their_own(task: ModuleType) -> None:
    rng = random.Random(3)
    for tool in task.TOOLS * 20:
        offer = task._offer(rng, tool)
        assert len(set(offer.names.values())) == len(tool.parameters)


def test_about_a_fifth_of_training_fits_no_function_and_tests_have_all_kinds(
    task: ModuleType, learned: list[Any]
) -> None:
    assert 0.17 < sum(example.call is None for example in learned) / len(learned) < 0.23
    assert [example.kind for example in task.held_out(4)] == [*task.KINDS, task.KINDS[0]]


def test_where_no_function_fits_the_one_asked_for_is_not_offered(task: ModuleType, tested: list[Any]) -> None:
    for example in tested:
        fitting = [
            tool
            for tool in task.UNSEEN_TOOLS
            for wording in tool.wordings
            if re.search(re.sub(r"\\\{.*?\}", ".+", re.escape(wording).replace("\\|", "|")), example.request)
        ]
        if example.kind == "no_tool":
            assert example.call is None
            assert not names(task, fitting) & offered(example)


# --- the score --------------------------------------------------------------------------------------------------------


def reply(**changes: Any) -> str:
    return json.dumps(CALL | {"arguments": CALL["arguments"] | changes})


@pytest.mark.parametrize(
    ("said", "valid", "name", "arguments"),
    [
        (json.dumps(CALL), True, True, True),
        ('\n{ "arguments": {"loud": true, "degrees": 3, "room": "hall"}, "name": "heat" }\n', True, True, True),
        (reply(degrees="3"), True, True, False),
        (reply(degrees=3.0), True, True, False),
        (reply(loud=1), True, True, False),
        (reply(room="Hall"), True, True, False),
        (reply(more=1), True, True, False),
        (json.dumps(CALL | {"name": "cool"}), True, False, True),
        (json.dumps({"name": "heat", "arguments": {}}), True, True, False),
        (json.dumps({"name": "heat"}), False, False, False),
        (json.dumps(CALL | {"id": 1}), False, False, False),
        (json.dumps({"name": "heat", "arguments": []}), False, False, False),
        (json.dumps([CALL]), False, False, False),
        (f"Here: {json.dumps(CALL)}", False, False, False),
        (json.dumps(CALL) * 2, False, False, False),
        (json.dumps(CALL)[:-1], False, False, False),
        (NO_CALL, True, False, False),
        ("[" * 100_000, False, False, False),
        ("", False, False, False),
    ],
)
def test_replies_where_a_call_is_right(task: ModuleType, said: str, valid: bool, name: bool, arguments: bool) -> None:
    example = task.Example("unseen_tool", (), "Heat the hall", CALL)
    assert task.score(said, example) == task.Score(valid, name, arguments, name and arguments)


@pytest.mark.parametrize(
    ("said", "valid", "exact"),
    [
        (NO_CALL, True, True),
        (f" {NO_CALL}\n", True, True),
        ("No function fits", False, False),
        ("no function fits.", False, False),
        (f"{NO_CALL} Sorry.", False, False),
        (json.dumps(CALL), True, False),
        ("", False, False),
    ],
)
def test_replies_where_no_function_fits(task: ModuleType, said: str, valid: bool, exact: bool) -> None:
    example = task.Example("no_tool", (), "Heat the hall", None)
    assert example.reply == NO_CALL
    assert task.score(said, example) == task.Score(valid, False, False, exact)


@given(said=st.text(max_size=60))
def test_any_reply_has_a_score(task: ModuleType, said: str) -> None:
    assert not task.score(said, task.Example("unseen_tool", (), "Heat the hall", CALL)).exact


def test_the_right_reply_is_exact_for_every_example(task: ModuleType, learned: list[Any], tested: list[Any]) -> None:
    assert all(task.score(example.reply, example).exact for example in learned + tested)
