import json
import time
from pathlib import Path

import pytest

from openrl.rewards import FieldInvalid, RewardResult
from workers.reward.functions import sql_execution

SCHEMA = "CREATE TABLE city (name TEXT, country TEXT, people INTEGER);"
SEED = """INSERT INTO city VALUES ('Oslo', 'Norway', 700), ('Bergen', 'Norway', 280), ('Rome', 'Italy', 2800),
('Milan', 'Italy', 1400);"""
CITIES = {"schema": SCHEMA, "seed": SEED, "gold": "SELECT name FROM city WHERE people > 500"}
RUNAWAY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
MANY = RUNAWAY.replace("FROM n)", "FROM n LIMIT 40)").replace("count(*)", "hex(zeroblob(500000)), i, i")
HUGE = f"INSERT INTO city {MANY}"


def score(text: str, context: dict[str, str] | None = None, **params: str) -> RewardResult:
    return sql_execution.score(text, {**CITIES, **(context or {})}, params)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SELECT name FROM city WHERE people > 500", 1.0),
        ("select city.name as n from city where not people <= 500 order by n;", 1.0),
        ("Sure:\n```sql\nSELECT name FROM city WHERE people > 500;\n```\nThis works.", 1.0),
        ("SELECT name FROM city", 0.0),
        ("SELECT name, people FROM city WHERE people > 500", 0.0),
        ("SELECT name FROM town", 0.0),
        ("I do not know", 0.0),
        ("", 0.0),
        ("SELECT name FROM city WHERE people > 500; SELECT 1", 0.0),
    ],
)
def test_a_query_is_right_where_it_answers_the_same_rows(text: str, value: float) -> None:
    assert score(text).value == value


def test_rows_count_as_often_as_they_come() -> None:
    gold = {"gold": "SELECT country FROM city"}
    assert score("SELECT country FROM city", gold).value == 1.0
    assert score("SELECT DISTINCT country FROM city", gold).value == 0.0
    assert score("SELECT DISTINCT country FROM city", gold).parts["rows"] == 0.5


def test_order_matters_where_the_gold_query_asks_for_it_or_the_caller_does() -> None:
    right, wrong = "SELECT name FROM city ORDER BY people", "SELECT name FROM city ORDER BY people DESC"
    assert [score(text, {"gold": right}).value for text in (right, wrong)] == [1.0, 0.0]
    plain = {"gold": "SELECT name FROM city"}
    assert score(wrong, plain).value == 1.0
    assert score(wrong, plain, ordered="true").value == 0.0


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY b)", False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'order by' FROM t -- order by", False),
    ],
)
def test_only_the_query_itself_is_looked_at_for_an_order(query: str, ordered: bool) -> None:
    assert sql_execution.is_ordered(query) is ordered


def test_parts_of_the_way_are_told_and_count_where_that_is_asked_for() -> None:
    ways = {
        "I do not know": (0.0, {"parsed": 0, "executed": 0, "columns": 0, "rows": 0}),
        "SELECT abs(-9223372036854775808)": (0.1, {"parsed": 1, "executed": 0, "columns": 0, "rows": 0}),
        "SELECT name, people FROM city": (0.2, {"parsed": 1, "executed": 1, "columns": 0, "rows": 0}),
        "SELECT name FROM city": (0.85, {"parsed": 1, "executed": 1, "columns": 1, "rows": 0.75}),
        CITIES["gold"]: (1.0, {"parsed": 1, "executed": 1, "columns": 1, "rows": 1}),
    }
    for text, (credit, parts) in ways.items():
        assert score(text).parts == parts
        assert score(text, credit="true").value == pytest.approx(credit)


def test_sums_may_differ_in_their_last_digits() -> None:
    context = {"schema": "CREATE TABLE t (x)", "seed": "INSERT INTO t VALUES (0.1), (0.2), (0.3)", "gold": "SELECT 0.6"}
    assert score("SELECT sum(x) FROM t", context).value == 1.0
    assert score("SELECT 0.61", context).value == 0.0


def test_seed_may_be_rows_by_table() -> None:
    seed = json.dumps({"city": [["Oslo", "Norway", 700], ["Rome", None, 2800]]})
    assert score("SELECT 'Oslo' UNION ALL SELECT 'Rome'", {"seed": seed}).value == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE city",
        "DELETE FROM city",
        "UPDATE city SET people = 0",
        "INSERT INTO city SELECT * FROM city",
        "INSERT INTO city VALUES ('a', 'b', 1) RETURNING name",
        "CREATE TEMP TABLE t (x)",
        "ATTACH DATABASE '{file}' AS other",
        "VACUUM INTO '{file}'",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('{file}')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('{file}', 'x')",
        "BEGIN",
        "ANALYZE",
        "CREATE VIRTUAL TABLE t USING fts3(x)",
    ],
)
def test_a_query_can_only_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    result = score(text.format(file=file))
    assert result.parts["executed"] == 0.0
    assert result.info["ending"] in ("forbidden", "syntax")
    assert not file.exists()
    assert score(CITIES["gold"]).value == 1.0


@pytest.mark.parametrize(
    "text",
    [
        RUNAWAY,
        f"SELECT count(*) FROM {', '.join(f'city c{number}' for number in range(16))}",
        RUNAWAY.replace("count(*)", "i") + " ORDER BY i",
    ],
)
def test_a_query_that_never_ends_is_interrupted_and_that_is_its_score(text: str) -> None:
    began = time.monotonic()
    result = score(text, seconds="0.1")
    assert (result.value, result.info["ending"]) == (0.0, "time")
    assert result.parts == {"parsed": 1, "executed": 0, "columns": 0, "rows": 0}
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("text", ["EXPLAIN SELECT 1", "/* a */ -- b\n explain QUERY PLAN SELECT name FROM city"])
def test_an_explanation_is_no_query(text: str) -> None:
    assert score(text).info["ending"] == "syntax"


def test_texts_of_one_context_share_a_database_until_one_does_something_unusual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bytes] = []
    new = sql_execution.Database.__init__

    def noted(database: sql_execution.Database, image: bytes = b"") -> None:
        made.append(image)
        new(database, image)

    score("SELECT 1", {"gold": "SELECT 2"})
    monkeypatch.setattr(sql_execution.Database, "__init__", noted)
    for text in ("SELECT 1", "SELECT", "DROP TABLE city", "SELECT 1"):
        score(text, {"gold": "SELECT 2"})
    assert made == []
    for text in (RUNAWAY, "SELECT zeroblob(100000000)", "SELECT abs(-9223372036854775808)"):
        score(text, {"gold": "SELECT 2"}, seconds="0.05")
        score("SELECT 1", {"gold": "SELECT 2"})
    assert len(made) == 3
    other = {"schema": "CREATE TABLE city (name)", "seed": "", "gold": "SELECT 0"}
    assert score("SELECT count(*) FROM city", other).value == 1.0
    assert score("SELECT count(*) FROM city", {"gold": "SELECT 4"}).value == 1.0


def test_time_that_a_busy_machine_takes_is_not_the_querys() -> None:
    with sql_execution.Database() as database:
        database._connection.create_function("nap", 1, time.sleep)
        answer = database.answer(
            "WITH RECURSIVE n(i) AS (SELECT nap(0.3) UNION ALL SELECT 1 FROM n LIMIT 5000) SELECT count(*) FROM n",
            seconds=0.2,
            most_rows=1,
        )
    assert answer.rows == sql_execution.Rows(1, ((5000,),))


def test_too_much_is_a_score_too() -> None:
    assert score("SELECT name FROM city", most_rows="3").info["ending"] == "size"
    assert score("SELECT zeroblob(100000000)").info["ending"] == "size"
    assert score("SELECT replace(hex(zeroblob(1000000)), '00', hex(zeroblob(1000)))").info["ending"] == "size"


@pytest.mark.parametrize(
    ("context", "params", "field"),
    [
        ({"schema": "CREATE TABEL"}, {}, "context.schema"),
        ({"schema": "ATTACH DATABASE '/tmp/x' AS y"}, {}, "context.schema"),
        ({"seed": "INSERT INTO nowhere VALUES (1)"}, {}, "context.seed"),
        ({"seed": '{"city": 1}'}, {}, "context.seed.city"),
        ({"seed": '{"city": [[1]]}'}, {}, "context.seed.city"),
        ({"seed": '{"city": [[[1], 2, 3]]}'}, {}, "context.seed.city"),
        ({"seed": "{"}, {}, "context.seed"),
        ({"gold": "SELECT nothing"}, {}, "context.gold"),
        ({"gold": "DROP TABLE city"}, {}, "context.gold"),
        ({"gold": "SELECT name FROM city"}, {"most_rows": "3"}, "context.gold"),
        ({"seed": HUGE}, {}, "context.seed"),
        ({}, {"seconds": "100"}, "params.seconds"),
        ({}, {"most_rows": "1000000"}, "params.most_rows"),
        ({}, {"credit": "some"}, "params.credit"),
    ],
)
def test_a_wrong_context_is_the_callers(context: dict[str, str], params: dict[str, str], field: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        score("SELECT 1", context, **params)
    assert caught.value.field == field


@pytest.mark.parametrize("key", ["schema", "gold"])
def test_a_missing_word_is_named(key: str) -> None:
    context = {name: word for name, word in CITIES.items() if name != key}
    with pytest.raises(FieldInvalid, match=rf"^context\.{key}: is missing"):
        sql_execution.score("SELECT 1", context, {})


def test_the_gold_query_runs_once_for_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    rows = sql_execution.Database.rows

    def counted(database: sql_execution.Database, query: str, *, seconds: float, most_rows: int) -> sql_execution.Rows:
        ran.append(query)
        return rows(database, query, seconds=seconds, most_rows=most_rows)

    monkeypatch.setattr(sql_execution.Database, "rows", counted)
    gold = {"gold": "SELECT name FROM city WHERE people < 500"}
    for _ in range(3):
        assert score("SELECT 'Bergen'", gold).value == 1.0
    assert ran.count(gold["gold"]) == 1
