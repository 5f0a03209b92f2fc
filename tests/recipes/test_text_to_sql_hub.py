"""Problems of the recipe text_to_sql that come from somebody's dataset."""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

CONTEXT = """CREATE TABLE owner (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT);
CREATE TABLE "my pet" (pet VARCHAR(20), age INT, owner_id INT, FOREIGN KEY (owner_id) REFERENCES owner(id));
INSERT INTO owner (name) VALUES ('Ann'), ('Bob');
INSERT INTO "my pet" VALUES ('Rex', 4, 1), ('Coco', 2, 2), ('Max', NULL, 1);"""
QUERY = "SELECT name FROM owner WHERE id = 2"
GOOD = {"question": "Who is second?", "context": CONTEXT, "answer": QUERY}

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*lines: dict[str, Any]) -> str:
        path = tmp_path / "lines.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)) + "\n")
        return str(path)

    return write


def many(count: int) -> list[dict[str, Any]]:
    """Of as many schemas, two questions to each."""
    return [
        {
            "question": f"What is in {number}, {way}?",
            "context": f"CREATE TABLE t{number} (a INT); INSERT INTO t{number} VALUES (7);",
            "answer": f"SELECT a FROM t{number} ORDER BY a {way}",
        }
        for number in range(count)
        for way in ("ASC", "DESC")
    ]


def test_a_line_becomes_a_problem_that_scores_like_any_other(text_to_sql: Any, write: Write) -> None:
    (problem,) = text_to_sql.hub.load(write(GOOD), held_out=0.0).seen
    assert problem.question == "Who is second?" and problem.gold == QUERY
    assert problem.rows == {
        "owner": [[1, "Ann"], [2, "Bob"]],
        "my pet": [["Rex", 4, 1], ["Coco", 2, 2], ["Max", None, 1]],
    }
    assert problem.short == "owner(id, name)\nmy pet(pet, age, owner_id -> owner.id)"
    assert problem.database == "owner"
    score = text_to_sql.reward.score
    assert score('SELECT name FROM owner JOIN "my pet" ON id = owner_id WHERE age = 2', problem).match
    assert not score("SELECT name FROM owner", problem).match
    json.dumps(problem.context())


def test_known_datasets_and_given_fields_say_what_a_line_s_parts_are_called(text_to_sql: Any, write: Write) -> None:
    hub = text_to_sql.hub
    names = ("sql_prompt", "sql_context", "sql")
    path = write(dict(zip(names, GOOD.values(), strict=True)))
    assert len(hub.load(path, fields=hub.KNOWN["gretelai/synthetic_text_to_sql"], held_out=0.0).seen) == 1
    with pytest.raises(KeyError, match="a line has no question, context, answer, but sql_prompt, sql_context, sql"):
        hub.load(path)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"context": "CREATE TABLE t (a ENUM('x') CHARACTER SET utf8);;; nonsense"}, "the context cannot be run"),
        ({"context": "ATTACH DATABASE '/tmp/nope.db' AS other"}, "the context cannot be run"),
        ({"context": "PRAGMA foreign_keys = ON"}, "the context cannot be run"),
        ({"answer": "SELECT name FROM cat"}, "the query cannot be run"),
        ({"answer": "DELETE FROM owner"}, "the query cannot be run"),
        ({"answer": f"EXPLAIN {QUERY}"}, "the query cannot be run"),
        ({"answer": "SELECT name FROM owner WHERE id = 9"}, "the query answers nothing"),
        ({"answer": "SELECT count(*) FROM owner WHERE id = 9"}, "the query answers nothing"),
        ({"answer": "SELECT max(age) FROM \"my pet\" WHERE age > 9"}, "the query answers nothing"),
        ({"context": CONTEXT + "INSERT INTO owner VALUES (3, x'00');"}, "the rows cannot be carried over"),
        ({"context": CONTEXT + "CREATE TABLE n (a, b AS (a)); INSERT INTO n VALUES (1)"},
         "the rows cannot be carried over"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_left_out_and_counted(
    text_to_sql: Any, write: Write, changed: dict[str, str], why: str
) -> None:
    pool = text_to_sql.hub.load(write(GOOD, {**GOOD, **changed}, {**GOOD, **changed}), held_out=0.0)
    assert len(pool.seen) == 1
    assert pool.left_out == {why: 2}


def test_a_context_without_an_end_is_left_out(text_to_sql: Any, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_to_sql.hub, "SECONDS", 0.02)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO owner SELECT i, i FROM n;"
    pool = text_to_sql.hub.load(write(GOOD, {**GOOD, "context": CONTEXT + endless}), held_out=0.0)
    assert pool.left_out == {"the context cannot be run": 1}


def test_schemas_without_rows_serve_for_supervised_training_alone(text_to_sql: Any, write: Write) -> None:
    path = write({**GOOD, "context": CONTEXT.partition("INSERT")[0]})
    with pytest.raises(ValueError, match=r"no line .* {'the query answers nothing': 1} \(answering=False takes"):
        text_to_sql.hub.load(path, held_out=0.0)
    (problem,) = text_to_sql.hub.load(path, held_out=0.0, answering=False).seen
    assert problem.messages()[1]["content"].startswith("owner(id, name)\n")


def test_problems_are_parted_by_schema_whatever_else_is_loaded(text_to_sql: Any, write: Write) -> None:
    whole = text_to_sql.hub.load(write(*many(100)), held_out=0.3)
    assert 40 <= len(whole.unseen) <= 80 and len(whole.seen) + len(whole.unseen) == 200
    assert not {problem.schema for problem in whole.seen} & {problem.schema for problem in whole.unseen}
    some = text_to_sql.hub.load(write(*many(100)[50:]), held_out=0.3)
    assert {problem.question for problem in some.unseen} < {problem.question for problem in whole.unseen}


def test_a_pool_is_drawn_from_as_the_recipe_draws(text_to_sql: Any, write: Write) -> None:
    pool = text_to_sql.hub.load(write(GOOD, *many(60)), held_out=0.3)
    assert pool.problems(20, 1) == pool.problems(20, 1) != pool.problems(20, 2)
    assert len({problem.question for problem in pool.problems(20, 1, unseen=True)}) == 20
    assert pool.draw(random.Random(0), unseen=True) in pool.unseen
    assert pool.draw(random.Random(0), level=2) in pool.seen
    with pytest.raises(ValueError, match="500 held-out problems are asked for, and there are"):
        pool.problems(500, 1, unseen=True)
    with pytest.raises(ValueError, match="no problem of level 4"):
        pool.draw(random.Random(0), level=4)


def test_no_more_lines_are_read_than_are_asked_for(text_to_sql: Any, write: Write) -> None:
    assert len(text_to_sql.hub.load(write(*many(10)), most=6, held_out=0.0).seen) == 6


@pytest.mark.parametrize(
    ("query", "level"),
    [
        ("SELECT a FROM t WHERE b = 1", 1),
        ("SELECT COUNT(*) FROM t", 2),
        ("SELECT a FROM t order  by a", 2),
        ("SELECT a, max (b) FROM t GROUP BY a", 3),
        ("SELECT a FROM t JOIN u ON t.x = u.x GROUP BY a", 4),
    ],
)
def test_a_query_s_level_is_that_of_the_recipe_s_own(text_to_sql: Any, query: str, level: int) -> None:
    assert text_to_sql.hub.level(query) == level


def test_levels_agree_with_those_of_drawn_problems(text_to_sql: Any) -> None:
    drawn = text_to_sql.problems.problems(80, 0)
    alike = [
        text_to_sql.hub.level(problem.gold) == problem.level for problem in drawn if "DISTINCT" not in problem.gold
    ]
    assert all(alike) and len(alike) > 60


def test_the_hub_is_asked_for_a_stream_by_name_and_split(text_to_sql: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_dataset(*names: str, **options: Any) -> list[dict[str, Any]]:
        asked.append((names, options))
        return [GOOD]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    pool = text_to_sql.hub.load("b-mc2/sql-create-context", split="test", held_out=0.0)
    assert len(pool.seen) == 1
    assert asked == [(("b-mc2/sql-create-context",), {"split": "test", "streaming": True})]


def test_without_the_library_it_is_said_how_to_get_it(text_to_sql: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        text_to_sql.hub.load("b-mc2/sql-create-context")
