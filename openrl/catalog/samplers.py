"""Sampling sessions: which weights each samples, for as long as it lives."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, Update, func, select, update
from sqlalchemy.exc import IntegrityError

from openrl.catalog.database import insert_once
from openrl.catalog.sessions import Sessions
from openrl.catalog.tables import samplers
from openrl.domain.errors import SamplerNotFound
from openrl.domain.ids import DepotKey, RunId, SamplerId, SessionId, TenantId
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

    def surplus_policies(self, *, newest: int, made_before: datetime) -> list[DepotKey]:
        """Of all runs the unnamed policies that have so many newer ones in their run, and whose samplers were all made
        before then; the oldest first."""
        living = samplers.c.run_id.is_not(None) & samplers.c.removed_at.is_(None)
        first, last = func.min(samplers.c.created_at).label("first"), func.max(samplers.c.created_at).label("last")
        each = select(samplers.c.policy, samplers.c.run_id, first, last).where(living)
        made = each.group_by(samplers.c.policy, samplers.c.run_id).subquery()
        place = func.row_number().over(partition_by=made.c.run_id, order_by=(made.c.first.desc(), made.c.policy))
        ranked = select(made.c.policy, made.c.first, made.c.last, place.label("place")).subquery()
        surplus = select(ranked.c.policy).where(ranked.c.place > newest, ranked.c.last < made_before)
        with self._database.reading() as connection:
            return [DepotKey(key) for key in connection.execute(surplus.order_by(ranked.c.first)).scalars()]

    def policy_removed(self, policy: DepotKey) -> None:
        """Its weights are gone: samplers of it say so from now on. Again, it changes nothing."""
        with self._database.writing() as connection:
            connection.execute(removal(policy))


def removal(policy: DepotKey) -> Update:
    """Notes of a policy's samplers that its weights are gone."""
    theirs = (samplers.c.policy == policy) & samplers.c.removed_at.is_(None)
    return update(samplers).where(theirs).values(removed_at=datetime.now(UTC))


def _values(sampler: Sampler) -> dict[str, object]:
    return {
        "id": sampler.id,
        "tenant_id": sampler.tenant,
        "session_id": sampler.session,
        "base_model": sampler.base_model,
        "requested_model": sampler.requested_model,
        "policy": sampler.policy,
        "model_path": sampler.model_path,
        "run_id": sampler.run,
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
        run=RunId(row.run_id) if row.run_id is not None else None,
        removed=row.removed_at is not None,
    )
