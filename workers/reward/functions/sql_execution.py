"""Runs the text's SQL and the gold query on a database made for the sample, and compares the rows."""

import re
from collections import Counter
from functools import lru_cache
from typing import Final

from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.functions.database import Answered, Database, QueryFailed, Rows
from workers.reward.functions.fences import inside
from workers.reward.functions.fields import as_json, flag, needed, number, whole

#: What each part is worth where `params.credit` asks for less than all or nothing.
WEIGHTS: Final = {"parsed": 0.1, "executed": 0.1, "columns": 0.2, "rows": 0.6}
_HARMLESS: Final = frozenset({"rows", "syntax", "forbidden"})  #: endings after which a database serves again
_last: Final[dict[tuple[str, str], Database]] = {}  #: one at most
_ASIDE: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


@reward(version="1", pure=False, seconds=10.0, overrun=0.0)
def score(text: str, context: Words, params: Words) -> RewardResult:
    """1 where the query (the last ```sql fence, else the text) answers the rows that `context.gold` answers on the
    database that `context.schema` and `context.seed` make; `params.credit=true` gives credit for parts of the way."""
    gold_query = needed(context, "gold")
    seconds = number("params.seconds", params.get("seconds", "1"), least=0.01, most=4)
    most_rows = whole(params, "most_rows", 10_000, least=1, most=100_000)
    credit, ordered = flag(params, "credit"), flag(params, "ordered") or is_ordered(gold_query)
    made = (needed(context, "schema"), context.get("seed", ""))
    gold = _gold(*made, gold_query, most_rows)
    answer = _answer(made, inside(text, "sql", "sqlite"), seconds, most_rows)
    parts = _parts(answer, gold, ordered=ordered)
    value = sum(WEIGHTS[name] * part for name, part in parts.items()) if credit else float(min(parts.values()) == 1.0)
    info = {"ending": answer.ending, **({"error": answer.error} if answer.error else {})}
    return RewardResult(round(value, 12), parts=parts, info=info)


def _answer(made: tuple[str, str], query: str, seconds: float, most_rows: int) -> Answered:
    """On the database of the last query, where that was made of the same and did nothing unusual; else on a new one."""
    database = _last.pop(made, None)
    if database is None:
        while _last:
            _last.popitem()[1].close()
        database = Database(_image(*made))
    answer = database.answer(query, seconds=seconds, most_rows=most_rows)
    if answer.ending in _HARMLESS:
        _last[made] = database
    else:
        database.close()
    return answer


@lru_cache(16)
def _image(schema: str, seed: str) -> bytes:
    """The database's bytes. Raises FieldInvalid: the schema or the rows are no good."""
    with Database() as database:
        database.build(schema, "schema")
        if seed.lstrip().startswith("{"):
            database.fill(as_json("context.seed", seed, dict))
        else:
            database.build(seed, "seed")
        return database.image()


@lru_cache(64)
def _gold(schema: str, seed: str, query: str, most_rows: int) -> Rows:
    with Database(_image(schema, seed)) as database:
        try:
            return database.rows(query, seconds=4.0, most_rows=most_rows)
        except QueryFailed as error:
            raise FieldInvalid("context.gold", f"{error.ending}: {error}") from None


def _parts(answer: Answered, gold: Rows, *, ordered: bool) -> dict[str, float]:
    rows = answer.rows
    same_columns = rows is not None and rows.columns == gold.columns
    return {
        "parsed": float(answer.parsed),
        "executed": float(rows is not None),
        "columns": float(same_columns),
        "rows": _alike(rows, gold, ordered=ordered) if rows is not None and same_columns else 0.0,
    }


def _alike(rows: Rows, gold: Rows, *, ordered: bool) -> float:
    """The share of rows that both have, in their places where these matter; 1 only where they are the same."""
    most = max(len(rows.values), len(gold.values))
    if most == 0:
        return 1.0
    if ordered:
        same = sum(one == other for one, other in zip(rows.values, gold.values, strict=False))
    else:
        same = (Counter(rows.values) & Counter(gold.values)).total()
    return same / most


@lru_cache(64)
def is_ordered(query: str) -> bool:
    """Whether the query itself, not one inside it, has an ORDER BY."""
    outside, depth = [], 0
    for character in _ASIDE.sub(" ", query):
        depth += (character == "(") - (character == ")")
        outside.append(character if depth == 0 else " ")
    return re.search(r"\border\s+by\b", "".join(outside), re.IGNORECASE) is not None
