"""The problems of the recipe text_to_sql."""

import json
import random
import re
from collections import Counter, defaultdict
from typing import Any

import pytest


@pytest.fixture(scope="module")
def many(text_to_sql: Any) -> list[Any]:
    """Of both kinds."""
    return [problem for unseen in (False, True) for problem in text_to_sql.problems.problems(120, 3, unseen=unseen)]


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_a_seed_draws_the_same_problems_and_another_one_others(text_to_sql: Any) -> None:
    one, again, other = (text_to_sql.problems.problems(40, seed) for seed in (1, 1, 2))
    assert one == again
    assert len({problem.question for problem in one} & {problem.question for problem in other}) < 10


def test_all_databases_are_drawn_from(text_to_sql: Any) -> None:
    for databases, unseen in ((text_to_sql.schemas.SEEN, False), (text_to_sql.schemas.UNSEEN, True)):
        names = {problem.database for problem in text_to_sql.problems.problems(120, 1, unseen=unseen)}
        assert names == {database.name for database in databases}


def test_levels_come_in_turn_and_no_problem_comes_twice(many: list[Any]) -> None:
    assert [problem.level for problem in many] == [1, 2, 3, 4] * 60
    assert len({(problem.database, problem.question) for problem in many}) == 240


def test_a_level_can_be_asked_for(text_to_sql: Any) -> None:
    rng = random.Random(0)
    drawn = [text_to_sql.problems.draw(rng, unseen=True, level=4) for _ in range(20)]
    assert all(problem.level == 4 and " JOIN " in problem.gold for problem in drawn)
    assert {text_to_sql.problems.draw(rng).level for _ in range(60)} == {1, 2, 3, 4}


# --- nothing leaks ----------------------------------------------------------------------------------------------------


def test_what_is_held_out_shares_no_table_no_column_and_no_value_with_training(text_to_sql: Any) -> None:
    def tables(databases: Any) -> list[Any]:
        return [table for database in databases for table in (database.parent, database.child)]

    seen, unseen = tables(text_to_sql.schemas.SEEN), tables(text_to_sql.schemas.UNSEEN)
    for names in (
        lambda table: {table.name, table.noun, table.nouns},
        lambda table: set(table.columns),
        lambda table: {value for pool in table.columns.values() for value in pool if isinstance(value, str)},
    ):
        assert not set().union(*map(names, seen)) & set().union(*map(names, unseen))


def test_no_table_stands_in_two_databases(text_to_sql: Any) -> None:
    databases = (*text_to_sql.schemas.SEEN, *text_to_sql.schemas.UNSEEN)
    names = Counter(table.name for database in databases for table in (database.parent, database.child))
    assert max(names.values()) == 1
    assert len({database.name for database in databases}) == len(databases) == 32


# --- questions that have one answer -----------------------------------------------------------------------------------


def test_a_database_names_no_column_twice_in_words_or_in_sql(text_to_sql: Any) -> None:
    for database in (*text_to_sql.schemas.SEEN, *text_to_sql.schemas.UNSEEN):
        columns = [*database.parent.columns, *database.child.columns, database.key]
        assert len(set(columns)) == len(columns) and database.link not in columns[:-1]
        for table in (database.parent, database.child):
            spoken = [text_to_sql.scene.said(table, column) for column in table.columns]
            assert len(set(spoken)) == len(spoken)
            assert table.kinds and table.numbers and isinstance(table.columns[table.label][0], str)


def test_a_question_about_a_database_has_one_query(text_to_sql: Any) -> None:
    """Whatever the rows: two queries for the same words would make one of them wrong by chance."""
    rng, found = random.Random(0), defaultdict[tuple[str, str], set[str]](set)
    for _ in range(3000):
        database = rng.choice(text_to_sql.schemas.UNSEEN)
        scene = text_to_sql.scene.Scene(rng, database, database.rows(rng))
        question, query = rng.choice(rng.choice(tuple(text_to_sql.intents.LEVELS.values())))(scene)
        found[database.name, question].add(str(query))
    assert len(found) < 2900  # many come more than once
    assert [queries for queries in found.values() if len(queries) > 1] == []


def test_a_gold_query_answers_something_and_matches_itself(text_to_sql: Any, many: list[Any]) -> None:
    for problem in many:
        score = text_to_sql.reward.score(problem.gold, problem)
        assert score.match and score.compiles and score.similarity == 1.0
        assert problem.opened().execute(problem.gold).fetchall()


def test_a_question_says_each_value_of_its_query_as_it_stands_in_its_column(many: list[Any]) -> None:
    checked = 0
    for problem in many:
        table, _, conditions = problem.gold.partition(" FROM ")[2].partition(" WHERE ")
        for column, value in re.findall(r"(\w+) (?:=|!=|>=?|<=?) ('[^']+'|[\d.]+)", conditions):
            assert value.strip("'") in problem.question
            (count,) = problem.opened().execute(f"SELECT count(*) FROM {table} WHERE {column} = {value}").fetchone()
            assert count, problem
            checked += 1
    assert checked > 120


TOP, BOTTOM = "highest|largest|greatest", "lowest|smallest"
#: What a query has if, and only if, its question says one of the words.
MEANT = {
    " > ": "above|over|(?<!no )more than|greater than",
    " < ": "below|under|(?<!no )less than|smaller than|fewer than",
    " >= ": "at least|no less than",
    " <= ": "at most|no more than",
    " != ": "is not",
    " OR ": "or",
    "avg(": "average|mean",
    "sum(": "total|combined",
    "DISTINCT": "different|distinct",
}
#: Where it has an order, and where it has none.
IN_ORDER = {" DESC": f"{TOP}|descending|the most"}
WITHOUT_ORDER = {"max(": f"{TOP}|maximum", "min(": f"{BOTTOM}|minimum"}


def test_a_question_says_what_its_query_does_and_nothing_else(many: list[Any]) -> None:
    for problem in many:
        meant = MEANT | (IN_ORDER if "ORDER BY" in problem.gold else WITHOUT_ORDER)
        for part, words in meant.items():
            said = re.search(rf"\b({words})\b", problem.question) is not None
            assert said == (part in problem.gold), (part, problem.question, problem.gold)


SWAPS = (
    (" > ", " >= "), (" > ", " < "), (" >= ", " > "), (" < ", " <= "), (" <= ", " < "), (" = '", " != '"),
    (" DESC", ""), ("avg(", "sum("), ("max(", "min("), ("count(*)", "count(DISTINCT 1)"), (" AND ", " OR "),
    ("DISTINCT ", ""), ("LIMIT 1", "LIMIT 2"), ("LIMIT 3", "LIMIT 2"),
)  # fmt: skip


def test_what_a_model_may_mix_up_is_wrong(text_to_sql: Any, many: list[Any]) -> None:
    """By the queries' words, without what the recipe knows of their parts."""
    misses = [(miss, problem) for problem in many for miss in mixed_up(problem)]
    taken = [miss for miss, problem in misses if text_to_sql.reward.score(miss, problem).match]
    assert len(misses) > 500
    assert len(taken) <= 0.02 * len(misses)


def mixed_up(problem: Any) -> list[str]:
    """Another sign, function or order; no condition; another column of the same table."""
    misses = [problem.gold.replace(*swap) for swap in SWAPS if swap[0] in problem.gold]
    if " WHERE " in problem.gold:
        misses.append(re.sub(r" WHERE .*?(?= GROUP BY|$)", "", problem.gold))
    first = re.split(", | FROM ", problem.gold.removeprefix("SELECT "))[0]
    shorts = [re.findall(r"[a-z_]+", line) for line in problem.short.splitlines()]
    others = [name for table, *names in shorts if first in names for name in names if name not in (first, table)]
    return misses + [problem.gold.replace(f"SELECT {first}", f"SELECT {name}", 1) for name in others[1:4]]


@pytest.mark.parametrize(
    ("rows", "tells"),
    [
        ([["a", 3], ["b", 4], ["c", 5], ["d", 2]], True),
        ([["a", 3], ["b", 4], ["c", 5]], False),  # so does `!= 3`
        ([["a", 3], ["b", 4], ["d", 2]], True),
        ([["b", 4], ["c", 5], ["d", 2]], False),  # so does `>= 3`
        ([["a", 3], ["d", 2]], False),  # it answers nothing
    ],
)
def test_rows_must_tell_a_query_from_its_near_misses(text_to_sql: Any, rows: list[list[Any]], tells: bool) -> None:
    query = text_to_sql.queries.Query(select=("name",), table="pet", where=(text_to_sql.queries.Test("age", ">", 3),))
    schema = "CREATE TABLE pet (name TEXT, age INTEGER)"
    assert text_to_sql.problems.tells(schema, {"pet": rows}, query, ["name", "age"]) is tells


# --- what the model reads ---------------------------------------------------------------------------------------------


def test_a_prompt_is_short_and_names_every_table_and_column(text_to_sql: Any, many: list[Any]) -> None:
    for problem in many:
        system, user = problem.messages()
        assert (system["role"], user["role"]) == ("system", "user")
        assert user["content"] == f"{problem.short}\n{problem.question}"
        assert set(re.findall(r"\w+", problem.schema.lower())) - set(re.findall(r"\w+", problem.short)) <= {
            "create", "table", "integer", "primary", "key", "text", "real", "references",
        }  # fmt: skip
        assert len(user["content"]) < 320 and len(problem.gold) < 180


def test_the_context_is_what_the_service_wants(text_to_sql: Any, many: list[Any]) -> None:
    context = many[0].context()
    assert set(context) == {"schema", "seed", "gold"}
    assert json.loads(context["seed"]) == many[0].rows
