from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from openrl.catalog.repository import Catalog
from openrl.domain.errors import CatalogUnreachable
from openrl.domain.ids import SamplerId, TenantId
from openrl.domain.policy import Sampler
from openrl.domain.run import Run


def test_many_threads_neither_wait_in_vain_nor_find_it_locked(catalog: Catalog, run: Run) -> None:
    _, secret = catalog.create_key("mine")
    sampler = Sampler(
        id=SamplerId("s"),
        tenant=run.tenant,
        session=run.session,
        base_model="b",
        requested_model="b",
        policy=None,
    )

    def client(number: int) -> None:
        for call in range(20):
            tenant = catalog.tenant_of_key(secret)
            catalog.session(tenant, run.session)
            catalog.run(tenant, run.id)
            catalog.add_sampler(replace(sampler, id=SamplerId(f"s-{number}-{call}")))

    with ThreadPoolExecutor(64) as threads:
        list(threads.map(client, range(64)))
    assert len(catalog.session_samplers(run.tenant, run.session)) == 64 * 20


def test_two_catalogs_on_one_database_see_each_other(catalog: Catalog, url: str) -> None:
    other = Catalog(url)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda n: (catalog if n % 2 else other).create_key("mine"), range(64)))
    assert {key.tenant for key, _ in made} == {catalog.tenant_of_key(made[0][1])}
    assert len(other.keys()) == 64
    other.close()


def test_a_sqlite_catalog_writes_ahead_and_keeps_its_foreign_keys(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path}/below/catalog.db")
    catalog.migrate()
    with catalog._database.reading() as connection:
        asked = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")]
    assert asked == ["wal", 1]
    catalog.close()


def test_a_catalog_in_memory_serves_threads_too() -> None:
    catalog = Catalog("sqlite://")
    catalog.migrate()
    with ThreadPoolExecutor(8) as threads:
        tenants: set[TenantId] = {key.tenant for key, _ in threads.map(lambda _: catalog.create_key("mine"), range(32))}
    assert len(tenants) == 1
    catalog.close()


def test_a_failed_write_leaves_nothing(catalog: Catalog, tenant: TenantId) -> None:
    with pytest.raises(ZeroDivisionError), catalog._database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM api_keys")
        raise ZeroDivisionError
    assert len(catalog.keys()) == 1


def test_what_is_asked_before_the_tables_are_made_says_so(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.db")
    with pytest.raises(CatalogUnreachable, match="no such table"):
        catalog.keys()
    catalog.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense", "not a database URL"),
        ("mysql://me@host/db", "only sqlite"),
        ("sqlite:////proc/nowhere/catalog.db", "nowhere"),
    ],
)
def test_a_url_that_cannot_work_is_told_at_once(url: str, why: str) -> None:
    with pytest.raises(CatalogUnreachable, match=why):
        Catalog(url)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(CatalogUnreachable) as error:
        Catalog("mysql://me:secret@host/db")
    assert "secret" not in str(error.value)


def test_a_database_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    file.mkdir()
    catalog = Catalog(f"sqlite:///{file}")
    with pytest.raises(CatalogUnreachable, match="unable to open"):
        catalog.migrate()


def test_a_moment_without_a_zone_is_our_mistake(a_run: Callable[..., Run], catalog: Catalog) -> None:
    with pytest.raises(Exception, match="has no time zone"):
        catalog.add_run(replace(a_run(), created_at=datetime.now(UTC).replace(tzinfo=None)))
