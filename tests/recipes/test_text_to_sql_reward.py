"""The reward of the recipe text_to_sql, where it is computed locally."""

import random
import sqlite3
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.reward.functions import sql_execution

SCHEMA = "CREATE TABLE city (name TEXT, country TEXT, people INTEGER);"
ROWS = {"city": [["Oslo", "Norway", 700], ["Bergen", "Norway", 280], ["Rome", "Italy", 2800], ["Milan", "Italy", 1400]]}
GOLD = "SELECT name FROM city WHERE people > 500"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
WORDS = (*" ;'(%-*", "DISTINCT ", " OR 1", " LIMIT 2", " DESC", "```sql\n", "VACUUM", "EXPLAIN ", "SELECT 1;", "--")


@pytest.fixture(scope="module")
def problem(text_to_sql: Any) -> Any:
    return text_to_sql.problems.Problem("Which?", SCHEMA, ROWS, GOLD, 1, "cities")


@pytest.mark.parametrize(
    ("text", "match", "compiles"),
    [
        (GOLD, True, True),
        (f"{GOLD};", True, True),
        ("select c.name as n from city c where not c.people <= 500 order by n", True, True),
        (f"Sure:\n```sql\n{GOLD}\n```\nThis works.", True, True),
        (f"```\n{GOLD}", True, True),
        (f";\n{GOLD}", True, True),
        (f"```sql\nSELECT 1\n```\n```sql\n{GOLD}\n```", True, True),
        ("SELECT name FROM city", False, True),
        ("SELECT name, people FROM city WHERE people > 500", False, True),
        ("SELECT abs(-9223372036854775807 - 1)", False, True),
        ("SELECT name FROM town", False, False),
        ("SELECT size FROM city", False, False),
        (f"{GOLD}; {GOLD}", False, False),
        (f"EXPLAIN {GOLD}", False, False),
        ("I do not know", False, False),
        ("\x00", False, False),
        ("\ud800", False, False),
        ("", False, False),
    ],
)
def test_a_query_matches_where_it_answers_the_same_rows(
    text_to_sql: Any, problem: Any, text: str, match: bool, compiles: bool
) -> None:
    score = text_to_sql.reward.score(text, problem)
    assert (score.match, score.compiles) == (match, compiles)


def test_rows_count_as_often_as_they_come(text_to_sql: Any, problem: Any) -> None:
    gold = replace(problem, gold="SELECT country FROM city")
    assert text_to_sql.reward.score("SELECT country FROM city", gold).match
    assert not text_to_sql.reward.score("SELECT DISTINCT country FROM city", gold).match


def test_order_matters_where_the_gold_query_asks_for_it(text_to_sql: Any, problem: Any) -> None:
    down = "SELECT name FROM city ORDER BY people DESC"
    assert text_to_sql.reward.score(down, replace(problem, gold="SELECT name FROM city")).match
    assert not text_to_sql.reward.score(down, replace(problem, gold="SELECT name FROM city ORDER BY people")).match
    for unordered in ("people IN (SELECT people FROM city ORDER BY people)", "name != ' ORDER BY '"):
        assert text_to_sql.reward.score(down, replace(problem, gold=f"SELECT name FROM city WHERE {unordered}")).match


def test_no_rows_are_the_same_as_no_rows_of_as_many_columns(text_to_sql: Any, problem: Any) -> None:
    nothing = replace(problem, gold="SELECT name FROM city WHERE people > 9000")
    assert text_to_sql.reward.score("SELECT name FROM city WHERE people > 8000", nothing).match
    assert not text_to_sql.reward.score("SELECT name, people FROM city WHERE people > 8000", nothing).match


def test_sums_may_differ_in_their_last_digits(text_to_sql: Any, problem: Any) -> None:
    assert text_to_sql.reward.score("SELECT 0.1 + 0.2", replace(problem, gold="SELECT 0.3")).match
    assert not text_to_sql.reward.score("SELECT 0.30001", replace(problem, gold="SELECT 0.3")).match


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE city",
        "DELETE FROM city",
        "INSERT INTO city VALUES ('a', 'b', 1)",
        "UPDATE city SET people = 1",
        "CREATE TABLE town (name)",
        "CREATE TEMP TABLE town (name)",
        "PRAGMA query_only = OFF",
        "PRAGMA table_info(city)",
        "SELECT * FROM pragma_table_info('city')",
        "ATTACH DATABASE '{file}' AS other",
        "VACUUM INTO '{file}'",
        "BEGIN",
        "SELECT load_extension('nothing')",
        "SELECT 1 FROM city WHERE people > 500; DROP TABLE city",
    ],
)
def test_what_is_not_reading_is_refused(text_to_sql: Any, problem: Any, text: str, tmp_path: Any) -> None:
    score = text_to_sql.reward.score(text.format(file=tmp_path / "made.db"), problem)
    assert (score.match, score.compiles) == (False, False)
    assert list(tmp_path.iterdir()) == []


def test_a_database_can_only_be_read_whatever_is_asked_of_it(text_to_sql: Any, problem: Any) -> None:
    database = text_to_sql.reward.built(problem)
    for text in ("DELETE FROM city", "PRAGMA query_only = OFF", "ATTACH ':memory:' AS other"):
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            database.execute(text)


@pytest.mark.parametrize("text", [ENDLESS, ENDLESS.replace("count(*)", "max(i)"), ENDLESS.replace("count(*)", "i")])
def test_a_query_without_an_end_is_ended(
    text_to_sql: Any, problem: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_to_sql.reward, "SECONDS", 0.02)
    began = time.thread_time()
    score = text_to_sql.reward.score(text, problem)
    assert (score.match, score.compiles) == (False, True)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    "column", ["hex(zeroblob(1000000))", "replace(hex(zeroblob(40000)), '0', 'xx')", "randomblob(1000000)"]
)
def test_a_value_that_is_huge_is_refused(text_to_sql: Any, problem: Any, column: str) -> None:
    database = text_to_sql.reward.built(problem)
    assert text_to_sql.reward.rows(database, f"SELECT {column} FROM city") is None


def test_many_rows_are_too_many(text_to_sql: Any, problem: Any) -> None:
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT i FROM n"
    for count, match in ((1000, True), (1001, False)):
        database = text_to_sql.reward.built(problem)
        assert (text_to_sql.reward.rows(database, rows.format(count)) is not None) is match


def test_a_gold_query_that_cannot_be_run_is_an_error(text_to_sql: Any, problem: Any) -> None:
    with pytest.raises(ValueError, match="gold query cannot be run: SELECT nope FROM city"):
        text_to_sql.reward.score(GOLD, replace(problem, gold="SELECT nope FROM city"))


def test_scores_may_be_taken_in_any_thread(text_to_sql: Any, problem: Any) -> None:
    scores: list[Any] = []
    threads = [
        threading.Thread(target=lambda: scores.append(text_to_sql.reward.score(GOLD, problem))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [score.match for score in scores] == [True] * 4


def test_similarity_is_of_words_and_signs_in_any_case(text_to_sql: Any) -> None:
    similarity = text_to_sql.reward.similarity
    assert similarity("select  NAME\nfrom city where people>500;", GOLD) == 1.0
    assert similarity("SELECT name FROM city WHERE people < 500", GOLD) == pytest.approx(14 / 16)
    assert similarity("", GOLD) == 0.0


@pytest.mark.parametrize(
    ("text", "weights", "value"),
    [
        (GOLD, {}, 1.1),
        ("SELECT name FROM city", {}, 0.1),
        ("SELECT name FROM town", {}, 0.0),
        (GOLD, {"match": 2.0, "compiles": 0.5, "similarity": 0.25}, 2.75),
        ("SELECT name FROM city WHERE people < 500", {"similarity": 0.8}, 0.8),
    ],
)
def test_a_reward_weighs_the_parts_of_a_score(
    text_to_sql: Any, problem: Any, text: str, weights: dict[str, float], value: float
) -> None:
    score = text_to_sql.reward.score(text, problem)
    assert text_to_sql.reward.reward(score, **weights) == pytest.approx(value)


@given(text=st.text(alphabet="SELECTselctnamfromity *(),;'`\"\n-/0123456789=<>", max_size=60))
def test_any_text_has_a_score(text_to_sql: Any, problem: Any, text: str) -> None:
    score = text_to_sql.reward.score(text, problem)
    assert 0.0 <= score.similarity <= 1.0
    assert score.compiles or not score.match


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 50), cut=st.integers(0, 200), word=st.sampled_from(WORDS), level=st.integers(1, 4))
def test_the_service_s_reward_function_says_the_same(
    text_to_sql: Any, seed: int, cut: int, word: str, level: int
) -> None:
    """Of the gold query, changed at any place."""
    problem = text_to_sql.problems.draw(random.Random(seed), level=level)
    for text in (problem.gold[:cut] + word + problem.gold[cut:], problem.gold[:cut] + word, word + problem.gold[cut:]):
        here, there = text_to_sql.reward.score(text, problem), sql_execution.score(text, problem.context(), {})
        assert (here.match, here.compiles) == (there.value == 1.0, there.parts["parsed"] == 1.0), text
