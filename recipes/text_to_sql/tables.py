"""What a database is made of: two tables, the second pointing at the first, and rows that are drawn for them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

Value = str | int | float
Rows = dict[str, list[list[Value]]]

PARENTS, CHILDREN = 5, 10  #: rows of the two tables
KINDS = 3  #: different words in a column that is no label


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    noun: str
    nouns: str
    columns: dict[str, Sequence[Value]]  #: what each is drawn from: words or numbers; the first is the table's label

    @property
    def label(self) -> str:
        return next(iter(self.columns))

    @property
    def numbers(self) -> list[str]:
        return [name for name, pool in self.columns.items() if not isinstance(pool[0], str)]

    @property
    def kinds(self) -> list[str]:
        """Columns of words in which rows agree."""
        return [name for name, pool in self.columns.items() if isinstance(pool[0], str) and name != self.label]


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    key: str  #: the parent's column
    link: str  #: the child's column that holds the parent's key
    parent: Table
    child: Table

    @property
    def schema(self) -> str:
        """Statements that make the tables."""
        key, link = f"{self.key} INTEGER PRIMARY KEY", f"{self.link} INTEGER REFERENCES {self.parent.name}({self.key})"
        parent, child = ", ".join([key, *_typed(self.parent)]), ", ".join([*_typed(self.child), link])
        return f"CREATE TABLE {self.parent.name} ({parent});\nCREATE TABLE {self.child.name} ({child});"

    @property
    def short(self) -> str:
        """The schema as a prompt shows it."""
        parent = ", ".join([self.key, *self.parent.columns])
        child = ", ".join([*self.child.columns, f"{self.link} -> {self.parent.name}.{self.key}"])
        return f"{self.parent.name}({parent})\n{self.child.name}({child})"

    def rows(self, rng: random.Random) -> Rows:
        """Fresh rows of both tables. Each parent has a child; numbers and labels are never the same twice."""
        keys = rng.sample(range(1, 20), PARENTS)
        owners = keys + rng.choices(keys, weights=range(PARENTS), k=CHILDREN - PARENTS)
        rng.shuffle(owners)
        parents = [[key, *row] for key, row in zip(keys, _drawn(self.parent, PARENTS, rng), strict=True)]
        children = [[*row, owner] for row, owner in zip(_drawn(self.child, CHILDREN, rng), owners, strict=True)]
        return {self.parent.name: parents, self.child.name: children}


def _typed(table: Table) -> list[str]:
    types = {str: "TEXT", int: "INTEGER", float: "REAL"}
    return [f"{name} {types[type(pool[0])]}" for name, pool in table.columns.items()]


def _drawn(table: Table, count: int, rng: random.Random) -> list[list[Value]]:
    kinds = table.kinds
    columns = [
        rng.choices(rng.sample(pool, KINDS), k=count) if name in kinds else rng.sample(pool, count)
        for name, pool in table.columns.items()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def table(name: str, nouns: str, /, **columns: Sequence[Value] | str) -> Table:
    """`nouns`: one and many; columns: numbers, or words in a line, between commas where they have spaces."""
    noun, many = (word.replace("_", " ") for word in nouns.split())
    pools = {column: listed(pool) if isinstance(pool, str) else pool for column, pool in columns.items()}
    return Table(name, noun, many, pools)


def listed(line: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in (line.split(",") if "," in line else line.split()))


def tenths(least: int, most: int) -> tuple[float, ...]:
    return tuple(number / 10 for number in range(least * 10 + 1, most * 10))
