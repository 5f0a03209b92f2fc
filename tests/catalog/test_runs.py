from collections.abc import Callable
from dataclasses import replace

import pytest

from openrl.catalog.repository import Catalog
from openrl.domain.errors import RunNotFound, SessionNotFound
from openrl.domain.ids import RunId, SessionId, TenantId
from openrl.domain.run import Run


def test_a_run_reads_back_as_it_was_added(catalog: Catalog, run: Run) -> None:
    assert catalog.run(run.tenant, run.id) == run


def test_a_run_of_all_weights_reads_back_as_one(catalog: Catalog, a_run: Callable[..., Run]) -> None:
    full = replace(a_run(), lora=None)
    assert catalog.add_run(full) == catalog.run(full.tenant, full.id) == full


def test_adding_a_run_again_changes_nothing(catalog: Catalog, run: Run) -> None:
    catalog.add_run(replace(run, base_model="models/other"))
    assert catalog.run(run.tenant, run.id) == run
    assert catalog.runs(run.tenant, 10, 0) == ([run], 1)


def test_a_run_needs_a_session_of_its_own_tenant(
    catalog: Catalog, a_run: Callable[..., Run], stranger: TenantId
) -> None:
    for wrong in (a_run(tenant=stranger), a_run(session=SessionId("absent"))):
        with pytest.raises(SessionNotFound):
            catalog.add_run(wrong)


def test_another_tenants_run_looks_as_if_it_were_absent(catalog: Catalog, run: Run, stranger: TenantId) -> None:
    for tried in (run.id, RunId("absent")):
        with pytest.raises(RunNotFound, match=tried):
            catalog.run(stranger, tried)
    assert catalog.runs(stranger, 10, 0) == ([], 0)
    assert catalog.session_runs(stranger, run.session) == []


def test_another_tenants_run_id_cannot_be_added_over(
    catalog: Catalog, run: Run, stranger: TenantId, begin: Callable[[TenantId], SessionId]
) -> None:
    with pytest.raises(RunNotFound):
        catalog.add_run(replace(run, tenant=stranger, session=begin(stranger)))
    assert catalog.run(run.tenant, run.id) == run


def test_runs_come_newest_first_in_pages_with_their_number(catalog: Catalog, a_run: Callable[..., Run]) -> None:
    made = [a_run(number) for number in range(5)]
    for run in made:
        catalog.add_run(run)
    tenant = made[0].tenant
    assert catalog.runs(tenant, 3, 0) == (made[:1:-1], 5)
    assert catalog.runs(tenant, 3, 3) == (made[1::-1], 5)
    assert catalog.session_runs(tenant, made[0].session) == [run.id for run in made]


def test_touching_a_run_moves_its_last_request(catalog: Catalog, run: Run) -> None:
    catalog.touch_run(run.id)
    found = catalog.run(run.tenant, run.id)
    assert found.last_request_at > run.last_request_at
    assert replace(found, last_request_at=run.last_request_at) == run
    with pytest.raises(RunNotFound):
        catalog.touch_run(RunId("absent"))
