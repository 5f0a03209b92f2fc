"""A database in memory that a query can only read, within its time, rows and memory. Knows SQLite, and nothing of
scores."""

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from openrl.rewards import FieldInvalid

#: Steps of SQLite's machine between two looks at the clock.
_STEPS: Final = 2_000
_BUILD_SECONDS: Final = 4.0
_MOST_BYTES: Final = 16 << 20  #: of a database
_LIMITS: Final = (
    (sqlite3.SQLITE_LIMIT_LENGTH, 4_000_000),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000_000),
    (sqlite3.SQLITE_LIMIT_COLUMN, 500),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 1_000_000),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
)
_BUILDING: Final = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA})
_FORBIDDEN_FUNCTIONS: Final = frozenset({"load_extension"})
_EXPLAINS: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rows:
    columns: int
    values: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What became of a query."""

    ending: str  #: `rows`, `syntax`, `forbidden`, `time`, `size` or `error`
    parsed: bool
    rows: Rows | None = None
    error: str = ""


class QueryFailed(Exception):
    def __init__(self, ending: str, error: str) -> None:
        super().__init__(error)
        self.ending = ending


class Database:
    def __init__(self, image: bytes = b"") -> None:
        """Empty, or as another one was."""
        self._connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
        if image:
            self._connection.deserialize(image)
        for limit, value in _LIMITS:
            self._connection.setlimit(limit, value)
        self._connection.execute("PRAGMA temp_store = MEMORY")
        self._connection.execute(f"PRAGMA max_page_count = {_MOST_BYTES // 4096}")
        self._reads = False  #: and nothing else, from the first query on

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self, script: str, key: str) -> None:
        """Run the statements of a context's word. Raises FieldInvalid."""
        self._connection.set_authorizer(_but(_BUILDING))
        try:
            with self._within(_BUILD_SECONDS):
                self._connection.executescript(script)
        except sqlite3.Error as error:
            raise FieldInvalid(f"context.{key}", f"cannot be run: {error}") from None

    def fill(self, tables: dict[str, Any]) -> None:
        """Rows by table, each a list of values. Raises FieldInvalid."""
        for table, rows in tables.items():
            field = f"context.seed.{table}"
            if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
                raise FieldInvalid(field, "must be a list of rows, each a list of values")
            name, places = table.replace('"', '""'), ", ".join("?" * len(rows[0]) if rows else "")
            try:
                if rows:
                    self._connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
            except (sqlite3.Error, OverflowError) as error:
                raise FieldInvalid(field, f"cannot be filled in: {error}") from None

    def image(self) -> bytes:
        self._connection.set_authorizer(None)  # it asks with a PRAGMA of its own
        return self._connection.serialize()

    def answer(self, query: str, *, seconds: float, most_rows: int) -> Answered:
        """What the query answers, or why it does not."""
        try:
            return Answered(ending="rows", parsed=True, rows=self.rows(query, seconds=seconds, most_rows=most_rows))
        except QueryFailed as error:
            parsed = error.ending not in ("syntax", "forbidden")
            return Answered(ending=error.ending, parsed=parsed, error=str(error)[:300])

    def rows(self, query: str, *, seconds: float, most_rows: int) -> Rows:
        """Raises QueryFailed."""
        self._only_read()
        try:
            with self._within(seconds):
                found = self._fetched(query, most_rows)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            self._require_legible(query, seconds)
            raise QueryFailed(_ending(error, "error"), str(error)) from None
        except MemoryError:
            raise QueryFailed("size", "out of memory") from None
        if found is None or _EXPLAINS.match(query):
            self._require_legible(query, seconds)
        if found is None:
            raise QueryFailed("error", "the query answers no rows at all")
        return found

    def _only_read(self) -> None:
        if not self._reads:
            self._connection.set_authorizer(None)
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.set_authorizer(_only_reading)
            self._reads = True

    def _require_legible(self, query: str, seconds: float) -> None:
        """Raises QueryFailed where it is no query, or not one that may be asked; nothing is run."""
        try:
            with self._within(seconds):
                self._connection.execute(f"EXPLAIN {query}").close()
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise QueryFailed(_ending(error, "syntax"), str(error)) from None

    def _fetched(self, query: str, most_rows: int) -> Rows | None:
        """None for what answers no rows at all."""
        cursor = self._connection.execute(query)
        if cursor.description is None:
            return None
        values = cursor.fetchmany(most_rows + 1)
        columns = len(cursor.description)
        cursor.close()
        if len(values) > most_rows:
            raise QueryFailed("size", f"more than {most_rows} rows")
        return Rows(columns, tuple(tuple(map(_plain, row)) for row in values))

    @contextlib.contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """A statement is interrupted when it has had the processor for so long: how busy the machine is costs nobody
        a score."""
        until = time.thread_time() + seconds
        self._connection.set_progress_handler(lambda: time.thread_time() > until, _STEPS)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)


def _plain(value: Any) -> Any:
    """Numbers to nine digits: sums differ in their last ones by the order of rows."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _ending(error: Exception, otherwise: str) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    words = {
        sqlite3.SQLITE_INTERRUPT: "time",
        sqlite3.SQLITE_AUTH: "forbidden",
        sqlite3.SQLITE_READONLY: "forbidden",
        sqlite3.SQLITE_TOOBIG: "size",
        sqlite3.SQLITE_NOMEM: "size",
    }
    return words.get(code, otherwise)


def _only_reading(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action not in _READING or (action == sqlite3.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _but(forbidden: frozenset[int]) -> Any:
    def allowed(action: int, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if action in forbidden else sqlite3.SQLITE_OK

    return allowed
