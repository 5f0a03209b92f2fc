"""What a question is put together from: parts of a database, values of its rows, and words for both."""

import random
from dataclasses import dataclass

from queries import Query, Test
from tables import Database, Rows, Table, Value

SAID = {
    ">": ("above", "over", "more than", "greater than"),
    "<": ("below", "under", "less than", "smaller than"),
    ">=": ("at least", "no less than"),
    "<=": ("at most", "no more than"),
}
TOP, BOTTOM = ("highest", "largest", "greatest"), ("lowest", "smallest")
FUNCTIONS = {
    "avg": ("average", "mean"),
    "sum": ("total", "combined"),
    "max": ("maximum", *TOP),
    "min": ("minimum", *BOTTOM),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A database with its rows, and the chance that words and values are drawn by."""

    rng: random.Random
    database: Database
    rows: Rows

    def one(self, *options: str) -> str:
        return self.rng.choice(options)

    def table(self) -> Table:
        return self.rng.choice((self.database.parent, self.database.child))

    def columns(self, query: Query) -> list[str]:
        """Those that the query's tables have, keys aside."""
        tables = (self.database.parent, self.database.child)
        return [column for table in tables if table.name in query.table.split() for column in table.columns]

    def joined(self) -> str:
        """Both tables, as FROM wants them."""
        parent, child = self.database.parent.name, self.database.child.name
        return f"{child} JOIN {parent} ON {child}.{self.database.link} = {parent}.{self.database.key}"

    def value(self, table: Table, column: str) -> Value:
        """One that stands in the rows."""
        first = table is self.database.parent  # its rows begin with the key
        place = list(table.columns).index(column) + first
        return self.rng.choice(self.rows[table.name])[place]

    def test(self, table: Table, *, but: tuple[str, ...] = ()) -> Test:
        column = self.rng.choice([column for column in table.columns if column not in but])
        value = self.value(table, column)
        if isinstance(value, str):
            unlike = column in table.kinds and self.rng.random() < 0.15
            return Test(column, "!=" if unlike else "=", value)
        return Test(column, self.one(*SAID, "="), value)

    def told(self, table: Table, test: Test) -> str:
        """`price is above 30`"""
        return f"{said(table, test.column)} is {self.against(test)}"

    def against(self, test: Test) -> str:
        if test.sign in SAID:
            return f"{self.one(*SAID[test.sign])} {test.value}"
        if test.sign == "!=":
            return f"not {test.value}"
        if isinstance(test.value, str):
            return test.value
        return f"{self.one('exactly ', 'equal to ', '')}{test.value}"

    def some(self, table: Table, test: Test) -> str:
        """`pets whose weight is over 4`"""
        column, against = said(table, test.column), self.against(test)
        if test.sign == "!=":
            return f"{table.nouns} whose {column} is {against}"
        return self.one(
            f"{table.nouns} whose {column} is {against}",
            f"{table.nouns} with {column} {against}",
            f"{table.nouns} where the {column} is {against}",
        )

    def wanted(self, table: Table, most: int = 2) -> tuple[str, ...]:
        """Columns to ask for: the label more often than others."""
        others = [column for column in table.columns if column != table.label]
        first = table.label if self.rng.random() < 0.7 else self.rng.choice(others)
        if most == 1 or self.rng.random() < 0.6:
            return (first,)
        return (first, self.rng.choice([column for column in table.columns if column != first]))

    def extreme(self) -> tuple[str, bool]:
        """A word for the top or the bottom, and whether it is the top."""
        top = self.rng.random() < 0.5
        return self.one(*(TOP if top else BOTTOM)), top


def said(table: Table, column: str) -> str:
    """A column in words: a `team_name` of a team is its name."""
    return column.replace("_", " ").removeprefix(f"{table.noun} ")


def listed(table: Table, columns: tuple[str, ...]) -> str:
    return " and ".join(said(table, column) for column in columns)
