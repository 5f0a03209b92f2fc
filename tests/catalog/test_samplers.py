from collections.abc import Callable
from dataclasses import replace

import pytest

from openrl.catalog.repository import Catalog
from openrl.domain.errors import SamplerNotFound, SessionNotFound
from openrl.domain.ids import DepotKey, SamplerId, SessionId, TenantId
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


def test_a_sampler_needs_a_session_of_its_own_tenant(catalog: Catalog, sampler: Sampler, stranger: TenantId) -> None:
    with pytest.raises(SessionNotFound):
        catalog.add_sampler(replace(sampler, id=SamplerId("new"), tenant=stranger))
