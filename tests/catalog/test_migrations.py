import os
import subprocess
import sys

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from openrl.catalog.migrations import upgrade
from openrl.catalog.repository import Catalog
from openrl.catalog.tables import metadata
from openrl.domain.errors import CatalogUnreachable
from openrl.domain.ids import DepotKey, SamplerId, TenantId


def test_the_migrations_make_exactly_the_tables(catalog: Catalog) -> None:
    with catalog._database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_constraints_have_the_names_that_the_tables_give_them(catalog: Catalog) -> None:
    with catalog._database.reading() as connection:
        inspector = sqlalchemy.inspect(connection)
        for table in metadata.tables.values():
            declared = {c.name for c in table.constraints if isinstance(c, sqlalchemy.ForeignKeyConstraint)}
            assert {key["name"] for key in inspector.get_foreign_keys(table.name)} == declared
            assert inspector.get_pk_constraint(table.name)["name"] == table.primary_key.name


def test_migrating_again_changes_nothing(catalog: Catalog) -> None:
    key, secret = catalog.create_key("mine")
    catalog.migrate()
    assert catalog.key_of(secret) == key


def test_samplers_of_an_earlier_release_read_as_before(url: str) -> None:
    catalog = Catalog(url)
    with catalog._database.writing() as connection:
        upgrade(connection, url, to="0001")
        for statement in (
            "INSERT INTO tenants VALUES ('t', 'anna', '2026-11-30')",
            "INSERT INTO sessions (id, tenant_id, tags, user_metadata, sdk_version, created_at, last_seen_at)"
            " VALUES ('s', 't', '[]', '{}', '0', '2026-11-30', '2026-11-30')",
            "INSERT INTO samplers VALUES ('s:sample:0', 't', 's', 'm', 'm', 'policies/1', NULL, '2026-11-30')",
        ):
            connection.execute(text(statement))
    catalog.migrate()
    sampler = catalog.sampler(TenantId("t"), SamplerId("s:sample:0"))
    assert (sampler.policy, sampler.run, sampler.removed) == ("policies/1", None, False)
    catalog.policy_removed(DepotKey("policies/1"))
    assert catalog.sampler(TenantId("t"), sampler.id).removed
    catalog.close()


def test_a_catalog_of_a_newer_version_is_refused(catalog: Catalog) -> None:
    with catalog._database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(CatalogUnreachable, match="a newer OpenRL made it"):
        catalog.migrate()


def test_several_processes_may_migrate_at_once(url: str) -> None:
    program = "import sys; from openrl.catalog.repository import Catalog; Catalog(sys.argv[1]).migrate()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen([sys.executable, "-c", program, url], env=environment) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    catalog = Catalog(url)
    assert catalog.keys() == []
    catalog.close()
