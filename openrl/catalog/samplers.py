"""Sampling sessions: which weights each samples, for as long as it lives."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.exc import IntegrityError

from openrl.catalog.database import insert_once
from openrl.catalog.sessions import Sessions
from openrl.catalog.tables import samplers
from openrl.domain.errors import SamplerNotFound
from openrl.domain.ids import DepotKey, SamplerId, SessionId, TenantId
from openrl.domain.policy import Sampler


class Samplers(Sessions):
    def add_sampler(self, sampler: Sampler) -> Sampler:
        """The sampler as it is kept: this one, or the one that was there already. Raises SessionNotFound."""
        try:
            with self._database.writing() as connection:
                added = insert_once(connection, samplers, _values(sampler))
        except IntegrityError:
            self.session(sampler.tenant, sampler.session)  # raises if it is that
            raise
        return sampler if added else self.sampler(sampler.tenant, sampler.id)

    def sampler(self, tenant: TenantId, sampler: SamplerId) -> Sampler:
        """Raises SamplerNotFound."""
        query = select(samplers).where(samplers.c.id == sampler, samplers.c.tenant_id == tenant)
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise SamplerNotFound(sampler)
        return _sampler(row)

    def session_samplers(self, tenant: TenantId, session: SessionId) -> list[SamplerId]:
        """Oldest first; none for a session that is not the tenant's."""
        theirs = (samplers.c.tenant_id == tenant) & (samplers.c.session_id == session)
        query = select(samplers.c.id).where(theirs).order_by(samplers.c.created_at, samplers.c.id)
        with self._database.reading() as connection:
            return [SamplerId(id) for id in connection.execute(query).scalars()]

    def session_policies(self, tenant: TenantId, session: SessionId) -> set[DepotKey]:
        """Folders of the weights that the session's samplers use; checkpoints among them are not the session's own."""
        theirs = (samplers.c.tenant_id == tenant) & (samplers.c.session_id == session)
        query = select(samplers.c.policy).where(theirs, samplers.c.policy.is_not(None)).distinct()
        with self._database.reading() as connection:
            return {DepotKey(key) for key in connection.execute(query).scalars()}


def _values(sampler: Sampler) -> dict[str, object]:
    return {
        "id": sampler.id,
        "tenant_id": sampler.tenant,
        "session_id": sampler.session,
        "base_model": sampler.base_model,
        "requested_model": sampler.requested_model,
        "policy": sampler.policy,
        "model_path": sampler.model_path,
        "created_at": datetime.now(UTC),
    }


def _sampler(row: Row[Any]) -> Sampler:
    return Sampler(
        id=SamplerId(row.id),
        tenant=TenantId(row.tenant_id),
        session=SessionId(row.session_id),
        base_model=row.base_model,
        requested_model=row.requested_model,
        policy=DepotKey(row.policy) if row.policy is not None else None,
        model_path=row.model_path,
    )
