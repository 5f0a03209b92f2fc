"""Problems from a dataset of the Hugging Face hub, or from a file of JSON lines, in place of those that are drawn.

    pool = load("gretelai/synthetic_text_to_sql", most=5000)
    pool.problems(100, seed=0, unseen=True)

A line has a question, a context (statements that make tables and fill them) and a query. Lines whose statements SQLite
cannot run are left out, and counted. So are queries that answer nothing: any wrong query that answers nothing, too,
would be as good. `b-mc2/sql-create-context` has no rows at all and serves for supervised training alone
(`answering=False`).
"""

import contextlib
import json
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from problems import Problem
from reward import built, rows, score

SECONDS = 2.0  #: of the processor, for the statements of one context
FORBIDDEN = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
NOTHING = "the query answers nothing"
PLAIN = (str, int, float, type(None))


@dataclass(frozen=True, slots=True)
class Fields:
    """How a dataset calls what is needed."""

    question: str = "question"
    context: str = "context"
    query: str = "answer"


KNOWN = {
    "gretelai/synthetic_text_to_sql": Fields("sql_prompt", "sql_context", "sql"),
    "b-mc2/sql-create-context": Fields("question", "context", "answer"),
}


class LeftOut(Exception):
    """Why a line cannot be used."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Problems, parted by schema: a schema that is held out is held out with all of its questions."""

    seen: list[Problem]
    unseen: list[Problem]
    left_out: Counter[str] = field(default_factory=Counter)  #: lines, by why

    def draw(self, rng: random.Random, *, unseen: bool = False, level: int | None = None) -> Problem:
        """One of them, of the level where one is asked for."""
        options = [one for one in self._of(unseen=unseen) if level in (None, one.level)]
        if not options:
            raise ValueError(f"there is no {'held-out ' * unseen}problem of level {level}")
        return rng.choice(options)

    def problems(self, count: int, seed: int, *, unseen: bool = False) -> list[Problem]:
        """So many different ones."""
        options = self._of(unseen=unseen)
        if count > len(options):
            raise ValueError(f"{count} {'held-out ' * unseen}problems are asked for, and there are {len(options)}")
        return random.Random(seed).sample(options, count)

    def _of(self, *, unseen: bool) -> list[Problem]:
        return self.unseen if unseen else self.seen


def load(
    source: str,
    *,
    fields: Fields | None = None,
    split: str = "train",
    most: int | None = None,
    held_out: float = 0.1,
    answering: bool = True,
) -> Pool:
    """The problems of a dataset's name or of a path that ends in `.jsonl`; `most`: lines that are read.

    `held_out`: the share of schemas that training never shows. `answering=False` takes queries that answer nothing,
    too. Raises ImportError where `datasets` is missing, KeyError for a field that a line has not, ValueError where
    nothing is left.
    """
    fields = fields or KNOWN.get(source, Fields())
    pool = Pool([], [])
    for number, line in enumerate(lines(source, split)):
        if number == most:
            break
        try:
            problem = made(told(line, fields), answering=answering)
        except LeftOut as why:
            pool.left_out[str(why)] += 1
            continue
        (pool.unseen if drawn_out(problem.schema, held_out) else pool.seen).append(problem)
    if not pool.seen:
        alone = " (answering=False takes them, for supervised training alone)" if NOTHING in pool.left_out else ""
        raise ValueError(f"no line of {source} can be used: {dict(pool.left_out)}{alone}")
    return pool


def lines(source: str, split: str) -> Iterator[Mapping[str, Any]]:
    if source.endswith(".jsonl"):
        with Path(source).open() as file:
            yield from map(json.loads, file)
        return
    try:
        from datasets import load_dataset
    except ImportError:
        raise ImportError("datasets of the Hugging Face hub need its library: pip install datasets") from None
    yield from load_dataset(source, split=split, streaming=True)


def told(line: Mapping[str, Any], fields: Fields) -> tuple[str, str, str]:
    """The question, the context and the query."""
    names = (fields.question, fields.context, fields.query)
    if missing := [name for name in names if name not in line]:
        raise KeyError(f"a line has no {', '.join(missing)}, but {', '.join(line)}; name its fields with `fields`")
    question, context, query = (str(line[name]).strip() for name in names)
    return question, context, query.rstrip("; \n")


def made(line: tuple[str, str, str], *, answering: bool) -> Problem:
    """Raises LeftOut."""
    question, context, query = line
    with contextlib.closing(filled(context)) as database:
        schema, short, values = statements(database), shortened(database), contents(database)
    name = re.split(r"\W+", short, maxsplit=1)[0]
    problem = Problem(question, schema, values, query, level(query), name, short)
    with contextlib.closing(opened(problem)) as database:
        found = rows(database, query)
    if found is None or not score(query, problem).match:
        raise LeftOut("the query cannot be run")
    if answering and not any(value not in (None, 0) for row in found[1] for value in row):
        raise LeftOut(NOTHING)
    return problem


def opened(problem: Problem) -> sqlite3.Connection:
    """Raises LeftOut where tables and rows cannot be made a second time."""
    try:
        return built(problem)
    except sqlite3.Error:
        raise LeftOut("the rows cannot be carried over") from None


def filled(context: str) -> sqlite3.Connection:
    """A database in memory, as the statements make it. Raises LeftOut."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in FORBIDDEN else sqlite3.SQLITE_OK)
    until = time.thread_time() + SECONDS
    database.set_progress_handler(lambda: time.thread_time() > until, 2_000)
    try:
        database.executescript(context)
    except (sqlite3.Error, ValueError):
        database.close()
        raise LeftOut("the context cannot be run") from None
    database.set_authorizer(None)
    database.set_progress_handler(None, 0)
    return database


def statements(database: sqlite3.Connection) -> str:
    own = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    return "\n".join(f"{sql};" for (sql,) in database.execute(own))


def shortened(database: sqlite3.Connection) -> str:
    """As the recipe's own schemas are shown: a table a line, without types."""
    return "\n".join(f"{table}({', '.join(columns(database, table))})" for table in tables(database))


def columns(database: sqlite3.Connection, table: str) -> Iterator[str]:
    links = {row[0]: f"{row[1]}.{row[2]}" for row in linked(database, table)}
    for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,)):
        yield f"{name} -> {links[name]}" if name in links else name


def linked(database: sqlite3.Connection, table: str) -> Iterable[tuple[str, str, str]]:
    found = database.execute('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (table,))
    return [(here, other, there) for here, other, there in found if there is not None]


def tables(database: sqlite3.Connection) -> list[str]:
    named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    return [name for (name,) in database.execute(named)]


def contents(database: sqlite3.Connection) -> dict[str, list[list[Any]]]:
    """Raises LeftOut for values that JSON has no word for."""
    found = {
        table: [list(row) for row in database.execute(f'SELECT * FROM "{quoted(table)}"')] for table in tables(database)
    }
    if not all(isinstance(value, PLAIN) for lines in found.values() for row in lines for value in row):
        raise LeftOut("the rows cannot be carried over")
    return found


def quoted(name: str) -> str:
    return name.replace('"', '""')


def level(query: str) -> int:
    """As the recipe's own levels: joins, groups, numbers and orders, plain rows."""
    for found, pattern in (
        (4, r"\bjoin\b"),
        (3, r"\bgroup\s+by\b"),
        (2, r"\border\s+by\b|\b(count|sum|avg|min|max)\s*\("),
    ):
        if re.search(pattern, query, re.IGNORECASE):
            return found
    return 1


def drawn_out(schema: str, share: float) -> bool:
    """Whether a schema is among those held out: by what it says alone, whatever else is loaded."""
    return int.from_bytes(sha256(schema.encode()).digest()[:4]) < share * 2**32
