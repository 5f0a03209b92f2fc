"""Training runs, each of a session."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, func, select, update
from sqlalchemy.exc import IntegrityError

from openrl.catalog.database import insert_once
from openrl.catalog.sessions import Sessions
from openrl.catalog.tables import runs
from openrl.domain.errors import RunNotFound
from openrl.domain.ids import RunId, SessionId, TenantId
from openrl.domain.run import LoraSpec, Run

_NEWEST = runs.c.created_at.desc(), runs.c.id


class Runs(Sessions):
    def add_run(self, run: Run) -> Run:
        """The run as it is kept: this one, or the one that was there already. Raises SessionNotFound."""
        try:
            with self._database.writing() as connection:
                added = insert_once(connection, runs, _values(run))
        except IntegrityError:
            self.session(run.tenant, run.session)  # raises if it is that
            raise
        return run if added else self.run(run.tenant, run.id)

    def run(self, tenant: TenantId, run: RunId) -> Run:
        """Raises RunNotFound."""
        query = select(runs).where(runs.c.id == run, runs.c.tenant_id == tenant)
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise RunNotFound(run)
        return _run(row)

    def runs(self, tenant: TenantId, limit: int, offset: int) -> tuple[list[Run], int]:
        """One page, and how many there are in all."""
        theirs = runs.c.tenant_id == tenant
        page = select(runs).where(theirs).order_by(*_NEWEST).limit(limit).offset(offset)
        with self._database.reading() as connection:
            total = connection.execute(select(func.count()).select_from(runs).where(theirs)).scalar_one()
            return [_run(row) for row in connection.execute(page)], total

    def session_runs(self, tenant: TenantId, session: SessionId) -> list[RunId]:
        """Oldest first; none for a session that is not the tenant's."""
        query = select(runs.c.id).where(runs.c.tenant_id == tenant, runs.c.session_id == session)
        with self._database.reading() as connection:
            return [RunId(id) for id in connection.execute(query.order_by(runs.c.created_at, runs.c.id)).scalars()]

    def touch_run(self, run: RunId) -> None:
        """A request for it came in. Raises RunNotFound."""
        with self._database.writing() as connection:
            touched = update(runs).where(runs.c.id == run).values(last_request_at=datetime.now(UTC))
            if connection.execute(touched).rowcount == 0:
                raise RunNotFound(run)


def _values(run: Run) -> dict[str, object]:
    return {
        "id": run.id,
        "tenant_id": run.tenant,
        "session_id": run.session,
        "base_model": run.base_model,
        "requested_model": run.requested_model,
        **_lora_values(run.lora),
        "user_metadata": run.user_metadata,
        "created_at": run.created_at,
        "last_request_at": run.last_request_at,
    }


def _lora_values(lora: LoraSpec | None) -> dict[str, object]:
    """Without an adapter the rank is 0, and everything is trained."""
    spec = lora or LoraSpec(rank=0)
    return {
        "lora_rank": spec.rank,
        "lora_seed": spec.seed,
        "train_attn": spec.train_attn,
        "train_mlp": spec.train_mlp,
        "train_unembed": spec.train_unembed,
    }


def _lora(row: Row[Any]) -> LoraSpec:
    return LoraSpec(
        rank=row.lora_rank,
        seed=row.lora_seed,
        train_attn=row.train_attn,
        train_mlp=row.train_mlp,
        train_unembed=row.train_unembed,
    )


def _run(row: Row[Any]) -> Run:
    return Run(
        id=RunId(row.id),
        tenant=TenantId(row.tenant_id),
        session=SessionId(row.session_id),
        base_model=row.base_model,
        requested_model=row.requested_model,
        lora=_lora(row) if row.lora_rank else None,
        created_at=row.created_at,
        last_request_at=row.last_request_at,
        user_metadata=row.user_metadata,
    )
