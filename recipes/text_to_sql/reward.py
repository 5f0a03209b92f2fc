"""The reward: run a reply's query beside the gold query and compare the rows.

Everything happens in a SQLite database in memory that a query can only read, for a second at most. That keeps a model's
mistakes out; it is no wall around somebody's intent, which the service's reward workers have.
"""

import re
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from problems import Problem

SECONDS = 1.0  #: of the processor, for one query
MOST_ROWS = 1_000
STEPS = 2_000  #: of SQLite's machine between two looks at the clock
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
ASIDE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
FENCE = re.compile(r"```([a-zA-Z0-9_+-]*)[^\S\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
TOKEN = re.compile(r"'(?:[^']|'')*'|[A-Za-z_]\w*|\d+(?:\.\d+)?|[<>!]=|\S")

Answer = tuple[int, list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Score:
    match: bool  #: it answers what the gold query answers
    compiles: bool  #: it is one query, and every name in it stands for something
    similarity: float  #: of its text to the gold query's, from 0 to 1


def score(text: str, problem: Problem) -> Score:
    """What a reply is worth. Its query is what stands in the last ```sql fence, else all of it."""
    query = inside(text).lstrip("; \n")
    alike = similarity(query, problem.gold)
    database = built(problem)
    try:
        if not compiles(database, query):
            return Score(False, False, alike)
        given, gold = rows(database, query), rows(database, problem.gold)
        if gold is None:
            raise ValueError(f"the gold query cannot be run: {problem.gold}")
        return Score(given is not None and same(given, gold, ordered=is_ordered(problem.gold)), True, alike)
    finally:
        database.close()


def reward(score: Score, *, match: float = 1.0, compiles: float = 0.1, similarity: float = 0.0) -> float:
    """One number of a score, by what each part of it is worth."""
    return match * score.match + compiles * score.compiles + similarity * score.similarity


# --- the database -----------------------------------------------------------------------------------------------------


def built(problem: Problem) -> sqlite3.Connection:
    """The problem's tables and rows; from here on they can only be read."""
    database = problem.opened()
    for limit, value in LIMITS.items():
        database.setlimit(limit, value)
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute("PRAGMA query_only = ON")
    database.set_authorizer(only_reading)
    return database


def only_reading(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    return sqlite3.SQLITE_DENY if loads or action not in READING else sqlite3.SQLITE_OK


def compiles(database: sqlite3.Connection, query: str) -> bool:
    """Whether SQLite would run it, and it would answer rows; nothing is run."""
    try:
        return any(step[1] == "ResultRow" for step in database.execute(f"EXPLAIN {query}"))
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return False


def rows(database: sqlite3.Connection, query: str) -> Answer | None:
    """How many columns the query answers, and its rows; None where it fails, takes too long or answers too much."""
    until = time.thread_time() + SECONDS
    database.set_progress_handler(lambda: time.thread_time() > until, STEPS)
    try:
        cursor = database.execute(query)
        columns, found = len(cursor.description or ()), cursor.fetchmany(MOST_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError):
        return None
    finally:
        database.set_progress_handler(None, 0)
    return None if len(found) > MOST_ROWS else (columns, [tuple(map(plain, row)) for row in found])


def plain(value: Any) -> Any:
    """Numbers to nine digits: sums differ in their last ones by the order of rows."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


# --- two answers, two texts -------------------------------------------------------------------------------------------


def same(given: Answer, gold: Answer, *, ordered: bool) -> bool:
    """Whether both have the same rows equally often, and in the same order where that matters."""
    return given == gold if ordered else given[0] == gold[0] and Counter(given[1]) == Counter(gold[1])


def is_ordered(query: str) -> bool:
    """Whether the query itself, not one inside it, has an ORDER BY."""
    outside, depth = "", 0
    for character in ASIDE.sub(" ", query):
        depth += (character == "(") - (character == ")")
        outside += character if depth == 0 else " "
    return re.search(r"\border\s+by\b", outside, re.IGNORECASE) is not None


def inside(text: str) -> str:
    """What stands in the last fence of SQL, else in the last without a language, else all of it."""
    fences = FENCE.findall(text)
    for wanted in (("sql", "sqlite"), ("",)):
        for language, body in reversed(fences):
            if language.lower() in wanted:
                return str(body).strip()
    return text.strip()


def similarity(query: str, gold: str) -> float:
    """The share of words and signs that both have in the same order, whatever their case."""
    one, other = ([token.lower() for token in TOKEN.findall(text.rstrip("; \n"))] for text in (query, gold))
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
