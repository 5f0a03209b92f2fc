"""One fresh catalog per test, on SQLite and on PostgreSQL."""

import os
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copyfile
from uuid import uuid4

import pytest
import sqlalchemy

from openrl.catalog.repository import Catalog
from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.ids import DepotKey, OpId, RunId, SessionId, TenantId
from openrl.domain.run import LoraSpec, Run

MORNING = datetime(2026, 11, 30, 8, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server: TEST_POSTGRES_URL, else one of our own from a wheel."""
    if "TEST_POSTGRES_URL" in os.environ:
        yield os.environ["TEST_POSTGRES_URL"]
        return
    pgserver = pytest.importorskip("pgserver", reason="no wheel with PostgreSQL for this Python; set TEST_POSTGRES_URL")
    with warnings.catch_warnings(action="ignore"):  # its own, about the folder it runs in
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield server.get_uri().replace("postgresql://postgres:@/", "postgresql+psycopg://postgres@/")
    server.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'catalog.db'}"
        return
    server = request.getfixturevalue("postgres")
    schema = f"t{uuid4().hex}"
    engine = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
        yield f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{schema}"
        connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")
    engine.dispose()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite catalog with its tables made, to be copied: migrating is most of the time a small test takes."""
    file = tmp_path_factory.mktemp("template") / "catalog.db"
    catalog = Catalog(f"sqlite:///{file}")
    catalog.migrate()
    catalog.close()
    return file


@pytest.fixture
def catalog(url: str, template: Path) -> Iterator[Catalog]:
    catalog = Catalog(url)
    if url.startswith("sqlite"):
        copyfile(template, url.removeprefix("sqlite:///"))
    else:
        catalog.migrate()
    yield catalog
    catalog.close()


@pytest.fixture
def tenant(catalog: Catalog) -> TenantId:
    return catalog.create_key("mine")[0].tenant


@pytest.fixture
def stranger(catalog: Catalog) -> TenantId:
    return catalog.create_key("theirs")[0].tenant


@pytest.fixture
def begin(catalog: Catalog) -> Callable[[TenantId], SessionId]:
    def begin(tenant: TenantId) -> SessionId:
        return catalog.create_session(
            tenant, tags=("a", "b"), user_metadata={"k": "v"}, display_name="d", sdk_version="0.38", project_id="p"
        )

    return begin


@pytest.fixture
def session(begin: Callable[[TenantId], SessionId], tenant: TenantId) -> SessionId:
    return begin(tenant)


@pytest.fixture
def a_run(tenant: TenantId, session: SessionId) -> Callable[..., Run]:
    def a_run(number: int = 0, *, tenant: TenantId = tenant, session: SessionId = session) -> Run:
        return Run(
            id=RunId(f"{session}:train:{number}"),
            tenant=tenant,
            session=session,
            base_model="models/tiny",
            requested_model="tiny",
            lora=LoraSpec(rank=8, seed=2**40, train_mlp=False),
            created_at=MORNING + timedelta(seconds=number),
            last_request_at=MORNING,
            user_metadata={"why": "test"},
        )

    return a_run


@pytest.fixture
def run(catalog: Catalog, a_run: Callable[..., Run]) -> Run:
    run = a_run()
    catalog.add_run(run)
    return run


@pytest.fixture
def a_checkpoint(run: Run) -> Callable[..., Checkpoint]:
    def a_checkpoint(
        name: str = "0001",
        *,
        op: str = "op-1",
        kind: CheckpointKind = CheckpointKind.WEIGHTS,
        expires_at: datetime | None = None,
    ) -> Checkpoint:
        return Checkpoint(
            path=CheckpointPath(run=run.id, kind=kind, name=name),
            tenant=run.tenant,
            key=DepotKey(f"checkpoints/{op}"),
            op=OpId(op),
            size_bytes=2**40,
            created_at=MORNING,
            has_optimizer=kind is CheckpointKind.WEIGHTS,
            expires_at=expires_at,
            user_metadata={"step": "1"},
        )

    return a_checkpoint
