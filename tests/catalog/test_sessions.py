from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from openrl.catalog.repository import Catalog
from openrl.domain.errors import SessionNotFound
from openrl.domain.ids import SessionId, TenantId

Begin = Callable[[TenantId], SessionId]


def test_a_session_reads_back_as_it_was_made(catalog: Catalog, tenant: TenantId, session: SessionId) -> None:
    found = catalog.session(tenant, session)
    assert (found.id, found.tenant, found.tags, found.user_metadata) == (session, tenant, ("a", "b"), {"k": "v"})
    assert (found.display_name, found.sdk_version, found.project_id) == ("d", "0.38", "p")
    assert found.created_at == found.last_seen_at
    assert found.finished_at is None
    assert abs(datetime.now(UTC) - found.created_at) < timedelta(minutes=1)


def test_a_session_id_is_safe_in_paths_and_run_ids(session: SessionId) -> None:
    assert not set(session) & set("/:.")


def test_another_tenants_session_looks_as_if_it_were_absent(
    catalog: Catalog, stranger: TenantId, session: SessionId
) -> None:
    told = []
    for tried in (session, SessionId("absent")):
        for ask in (
            lambda id: catalog.session(stranger, id),
            lambda id: catalog.touch_session(stranger, id),
            lambda id: catalog.finish_session(stranger, id, "success", None),
        ):
            with pytest.raises(SessionNotFound) as error:
                ask(tried)
            told.append(str(error.value).replace(tried, "ID"))
    assert len(set(told)) == 1
    assert catalog.sessions(stranger, 10, 0) == []


def test_a_heartbeat_moves_last_seen(catalog: Catalog, tenant: TenantId, session: SessionId) -> None:
    before = catalog.session(tenant, session)
    catalog.touch_session(tenant, session)
    after = catalog.session(tenant, session)
    assert after.last_seen_at > before.last_seen_at
    assert after.created_at == before.created_at


def test_the_first_finish_counts(catalog: Catalog, tenant: TenantId, session: SessionId) -> None:
    catalog.finish_session(tenant, session, "errored", "out of luck")
    first = catalog.session(tenant, session)
    catalog.finish_session(tenant, session, "success", None)
    assert catalog.session(tenant, session) == first
    assert (first.finish_reason, first.finish_detail) == ("errored", "out of luck")
    assert first.finished_at is not None


def test_sessions_come_newest_first_and_in_pages(catalog: Catalog, tenant: TenantId, begin: Begin) -> None:
    made = [begin(tenant) for _ in range(5)]
    pages = catalog.sessions(tenant, 3, 0) + catalog.sessions(tenant, 3, 3)
    assert pages == made[::-1]
