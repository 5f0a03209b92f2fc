"""The task: a schema and a question in words; the answer is a SQL query.

Problems are drawn afresh, in four levels: rows by a condition (1), numbers about them, orders and limits (2), groups
(3) and joins (4). A question says which columns it asks for, and the rows tell the right query from its near misses.
"""

import contextlib
import json
import random
import sqlite3
from dataclasses import dataclass

from intents import LEVELS
from queries import Query, near_misses
from scene import Scene
from schemas import SEEN, UNSEEN
from tables import Rows

SYSTEM = "You write SQL."


@dataclass(frozen=True, slots=True)
class Problem:
    question: str
    schema: str  #: statements that make the tables
    rows: Rows  #: by table
    gold: str
    level: int
    database: str
    short: str = ""  #: the schema as the prompt shows it, where that is not the statements

    def messages(self) -> list[dict[str, str]]:
        """The chat to put before the model; what it answers should be the query alone."""
        return [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{self.short or self.schema}\n{self.question}"},
        ]

    def context(self) -> dict[str, str]:
        """What the service's reward function `sql_execution` has to know of it."""
        return {"schema": self.schema, "seed": json.dumps(self.rows), "gold": self.gold}

    def opened(self) -> sqlite3.Connection:
        """A database in memory with the tables and their rows."""
        return opened(self.schema, self.rows)


def draw(rng: random.Random, *, unseen: bool = False, level: int | None = None) -> Problem:
    """A fresh problem; `unseen` takes it from the databases held out of training."""
    level = level or rng.choice(tuple(LEVELS))
    while True:
        database = rng.choice(UNSEEN if unseen else SEEN)
        scene = Scene(rng, database, database.rows(rng))
        question, query = rng.choice(LEVELS[level])(scene)
        if tells(database.schema, scene.rows, query, scene.columns(query)):
            return Problem(question, database.schema, scene.rows, str(query), level, database.name, database.short)


def problems(count: int, seed: int, *, unseen: bool = False) -> list[Problem]:
    """So many problems, the levels in turn; no two have the same question about the same database."""
    rng, found = random.Random(f"{seed} {unseen}"), dict[tuple[str, str], Problem]()
    while len(found) < count:
        problem = draw(rng, unseen=unseen, level=len(found) % len(LEVELS) + 1)
        found.setdefault((problem.database, problem.question), problem)
    return list(found.values())


def tells(schema: str, rows: Rows, query: Query, columns: list[str]) -> bool:
    """Whether none of the query's near misses answers the same there. (Where it answers nothing, some of them do.)"""
    with contextlib.closing(opened(schema, rows)) as database:
        right = answer(database, query)
        return not any(answer(database, miss) == right for miss in near_misses(query, columns))


def answer(database: sqlite3.Connection, query: Query) -> list[tuple[object, ...]]:
    """Its rows, sorted where their order says nothing."""
    rows = database.execute(str(query)).fetchall()
    return rows if query.order else sorted(rows, key=repr)


def opened(schema: str, rows: Rows) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    database.executescript(schema)
    for table, lines in rows.items():
        if lines:
            database.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(lines[0]))})', lines)
    return database
