from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from openrl.catalog.repository import Catalog
from openrl.domain.errors import SamplerNotFound, SessionNotFound
from openrl.domain.ids import DepotKey, RunId, SamplerId, SessionId, TenantId
from openrl.domain.policy import Sampler


@pytest.fixture
def sampler(catalog: Catalog, tenant: TenantId, session: SessionId) -> Sampler:
    sampler = Sampler(
        id=SamplerId(f"{session}:sample:0"),
        tenant=tenant,
        session=session,
        base_model="models/tiny",
        requested_model="tiny",
        policy=DepotKey("policies/1"),
        model_path="tinker://run/sampler_weights/1",
    )
    catalog.add_sampler(sampler)
    return sampler


def test_a_sampler_reads_back_as_it_was_added(catalog: Catalog, sampler: Sampler) -> None:
    assert catalog.sampler(sampler.tenant, sampler.id) == sampler


def test_a_sampler_of_the_base_model_has_no_policy(catalog: Catalog, sampler: Sampler) -> None:
    plain = replace(sampler, id=SamplerId(f"{sampler.session}:sample:1"), policy=None, model_path=None)
    catalog.add_sampler(plain)
    assert catalog.sampler(plain.tenant, plain.id) == plain
    assert catalog.session_samplers(plain.tenant, plain.session) == [sampler.id, plain.id]


def test_a_sampler_keeps_the_policy_it_was_made_with(catalog: Catalog, sampler: Sampler) -> None:
    catalog.add_sampler(replace(sampler, policy=DepotKey("policies/2")))
    assert catalog.sampler(sampler.tenant, sampler.id) == sampler


def test_another_tenants_sampler_looks_as_if_it_were_absent(
    catalog: Catalog, sampler: Sampler, stranger: TenantId, begin: Callable[[TenantId], SessionId]
) -> None:
    for tried in (sampler.id, SamplerId("absent")):
        with pytest.raises(SamplerNotFound, match=tried):
            catalog.sampler(stranger, tried)
    with pytest.raises(SamplerNotFound):
        catalog.add_sampler(replace(sampler, tenant=stranger, session=begin(stranger)))
    assert catalog.session_samplers(stranger, sampler.session) == []


@pytest.fixture
def version(catalog: Catalog, tenant: TenantId, session: SessionId) -> Callable[..., DepotKey]:
    """Enters a sampler of an unnamed version."""

    def version(number: int, name: str = "", run: str = "train:0") -> DepotKey:
        policy = DepotKey(f"policies/{name or number}")
        of = {"tenant": tenant, "session": session, "base_model": "m", "requested_model": "m"}
        catalog.add_sampler(Sampler(id=SamplerId(f"{run}:{number}"), policy=policy, run=RunId(run), **of))  # type: ignore[arg-type]
        return policy

    return version


def soon() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=1)


def test_a_run_has_a_surplus_of_all_but_its_newest_versions(
    catalog: Catalog, sampler: Sampler, version: Callable[..., DepotKey]
) -> None:
    mine = [version(number) for number in range(4)]
    others = [version(10 + number, run="train:1") for number in range(2)]
    assert catalog.surplus_policies(newest=2, made_before=soon()) == mine[:2]
    assert catalog.surplus_policies(newest=1, made_before=soon()) == [*mine[:3], others[0]]
    assert catalog.surplus_policies(newest=4, made_before=soon()) == []
    catalog.policy_removed(mine[0])
    assert catalog.surplus_policies(newest=2, made_before=soon()) == mine[1:2]
    assert catalog.surplus_policies(newest=3, made_before=soon()) == [], "what is removed counts no more"


def test_a_version_whose_sampler_was_made_of_late_is_no_surplus(
    catalog: Catalog, version: Callable[..., DepotKey]
) -> None:
    for number, name in enumerate(("a", "b", "c")):
        version(number, name)
    then = datetime.now(UTC)
    version(3, "a")  # a resend that names another sampler
    assert catalog.surplus_policies(newest=1, made_before=then) == ["policies/b"]
    assert catalog.surplus_policies(newest=1, made_before=soon()) == ["policies/a", "policies/b"]


def test_all_samplers_of_a_removed_version_know(
    catalog: Catalog, tenant: TenantId, version: Callable[..., DepotKey]
) -> None:
    policy = version(0, "a")
    version(1, "a"), version(2, "b")
    for _ in range(2):
        catalog.policy_removed(policy)
    removed = [catalog.sampler(tenant, SamplerId(f"train:0:{number}")).removed for number in range(3)]
    assert removed == [True, True, False]
    assert catalog.sampler(tenant, SamplerId("train:0:0")).run == "train:0"


def test_a_sampler_needs_a_session_of_its_own_tenant(catalog: Catalog, sampler: Sampler, stranger: TenantId) -> None:
    with pytest.raises(SessionNotFound):
        catalog.add_sampler(replace(sampler, id=SamplerId("new"), tenant=stranger))
