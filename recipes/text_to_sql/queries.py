"""Queries as parts, so that they can be written down, and changed a little into queries that should not be right."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tables import Value

SIGNS = (">", "<", ">=", "<=", "=", "!=")
FUNCTIONS = ("avg", "sum", "min", "max", "count")


@dataclass(frozen=True, slots=True)
class Test:
    """A column (or a function of one) against a value."""

    column: str
    sign: str
    value: Value

    def __str__(self) -> str:
        value = f"'{self.value}'" if isinstance(self.value, str) else self.value
        return f"{self.column} {self.sign} {value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    select: tuple[str, ...]
    table: str  #: with its JOIN, where it has one
    where: tuple[Test, ...] = ()
    either: bool = False  #: OR between the tests
    group: str = ""
    having: Test | None = None
    order: str = ""
    down: bool = False
    limit: int = 0

    def __str__(self) -> str:
        parts = [f"SELECT {', '.join(self.select)} FROM {self.table}"]
        if self.where:
            parts.append("WHERE " + (" OR " if self.either else " AND ").join(map(str, self.where)))
        if self.group:
            parts.append(f"GROUP BY {self.group}")
        if self.having:
            parts.append(f"HAVING {self.having}")
        if self.order:
            parts.append(f"ORDER BY {self.order}{' DESC' if self.down else ''}")
        if self.limit:
            parts.append(f"LIMIT {self.limit}")
        return " ".join(parts)


def near_misses(query: Query, columns: list[str]) -> Iterator[Query]:
    """Queries that differ from this one in one thing that a question says. `columns` are those that could be meant."""
    for place, term in enumerate(query.select):
        for other in _other_terms(term, columns):
            yield replace(query, select=(*query.select[:place], other, *query.select[place + 1 :]))
    for place, test in enumerate(query.where):
        for column in columns:
            if column != test.column:
                yield replace(
                    query, where=tuple(replace(test, column=column) if one is test else one for one in query.where)
                )
        others = query.where[:place], query.where[place + 1 :]
        yield replace(query, where=(*others[0], *others[1]))
        for sign in _other_signs(test):
            yield replace(query, where=(*others[0], replace(test, sign=sign), *others[1]))
    if len(query.where) > 1:
        yield replace(query, either=not query.either)
    if query.having:
        yield replace(query, having=None)
        for sign in _other_signs(query.having):
            yield replace(query, having=replace(query.having, sign=sign))
    if query.order:
        yield replace(query, down=not query.down)
        yield replace(query, order="", down=False)
        for column in columns:
            if column != query.order:
                yield replace(query, order=column)
    if query.limit:
        yield replace(query, limit=0)
        yield replace(query, limit=query.limit + 1)


def _other_signs(test: Test) -> list[str]:
    signs = ("=", "!=") if isinstance(test.value, str) else SIGNS
    return [sign for sign in signs if sign != test.sign]


def _other_terms(term: str, columns: list[str]) -> list[str]:
    if "DISTINCT " in term:
        plain = term.replace("DISTINCT ", "")
        return [plain, *(f"DISTINCT {other}" for other in columns if other != plain)]
    function, bracket, column = term.rstrip(")").partition("(")
    if not bracket:
        return [other for other in columns if other != term]
    if column == "*":
        return [f"sum({other})" for other in columns]
    functions = [f"{other}({column})" for other in FUNCTIONS if other != function]
    return functions + [f"{function}({other})" for other in columns if other != column]
