"""The connection to the database: SQLite in a file by default, PostgreSQL where several machines share a catalog.

Every call of the catalog borrows a connection for one short transaction, so hundreds of threads get by with a few.
SQLite has one writer at a time: writers of this process queue at a lock, those of other processes at SQLite's own.
Knows no table. One per process: a connection must not cross a fork.
"""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import URL, Connection, Engine, QueuePool, Table, create_engine, event, func, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError, TimeoutError

from openrl.domain.errors import CatalogUnreachable

WAIT_SECONDS = 60  #: for a connection of the pool, and for SQLite's write lock
MIGRATION_LOCK = 0x4F50454E524C  #: "OPENRL", PostgreSQL's advisory lock around a migration


class Database:
    def __init__(self, url: str) -> None:
        """Connects to nothing yet. Raises CatalogUnreachable for a URL that cannot work."""
        parsed = _parsed(url)
        self.shown = parsed.render_as_string(hide_password=True)
        self._file = _sqlite_file(parsed)
        try:
            is_sqlite = parsed.get_backend_name() == "sqlite"
            engine = _sqlite_engine(parsed, self._file) if is_sqlite else _postgres_engine(parsed)
        except ImportError as error:
            raise CatalogUnreachable(self.shown, f"{error}; for PostgreSQL install psycopg[binary]") from error
        except OSError as error:
            raise CatalogUnreachable(self.shown, str(error)) from error
        self._engine = engine
        self._reads = engine if is_sqlite else engine.execution_options(isolation_level="AUTOCOMMIT")
        self._writes = engine.execution_options(writes=True)
        self._turn: AbstractContextManager[Any] = Lock() if is_sqlite else nullcontext()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """For selects; each sees the latest commit."""
        with self._reached(), self._reads.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, committed unless the block raises."""
        with self._reached(), self._turn, self._writes.begin() as connection:
            yield connection

    def ping(self) -> None:
        """Raises CatalogUnreachable where it does not answer."""
        with self.reading() as connection:
            connection.execute(select(1))

    def migrate(self) -> None:
        """Bring the tables up to date. Any number of processes may ask at once: one works, the others wait for it."""
        from openrl.catalog.migrations import upgrade  # alembic is needed nowhere else

        with self._reached(), _file_lock(self._file):
            if self._file is not None:
                self._write_ahead()
            with self.writing() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
                upgrade(connection, self.shown)

    def close(self) -> None:
        self._engine.dispose()

    def _write_ahead(self) -> None:
        """Readers and the writer stop blocking each other. The file remembers it; the switch needs the file alone."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            raise CatalogUnreachable(self.shown, str(error.orig)) from error
        except TimeoutError as error:
            raise CatalogUnreachable(self.shown, f"no free connection within {WAIT_SECONDS} s") from error


class Records:
    """What the nouns of the catalog share."""

    def __init__(self, database: Database) -> None:
        self._database = database


def insert_once(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless its primary key (or another unique value) is there already; tells whether it did."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return connection.execute(insert(table).values(dict(values)).on_conflict_do_nothing()).rowcount == 1


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise CatalogUnreachable(url, "not a database URL; use sqlite:///FILE or postgresql://…") from error
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise CatalogUnreachable(parsed.render_as_string(), "only sqlite:///FILE and postgresql://… are supported")
    return parsed


def _sqlite_file(url: URL) -> Path | None:
    in_memory = url.database in (None, "", ":memory:")
    return None if in_memory or url.get_backend_name() != "sqlite" else Path(str(url.database))


def _sqlite_engine(url: URL, file: Path | None) -> Engine:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=8 if file else 1,  # a database in memory is its one connection
        max_overflow=0,
        pool_timeout=WAIT_SECONDS,
        connect_args={"check_same_thread": False, "timeout": WAIT_SECONDS},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe from a crash of ours, not fsynced per commit


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the lock before it reads: upgrading a read lock later cannot wait, only fail."""
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _postgres_engine(url: URL) -> Engine:
    return create_engine(url, pool_size=8, max_overflow=8, pool_timeout=WAIT_SECONDS, pool_pre_ping=True)


@contextmanager
def _file_lock(file: Path | None) -> Iterator[None]:
    """Between processes on one machine; nothing for a database that has no file."""
    if file is None:
        yield
        return
    with file.with_name(file.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # closing lets go
        yield
