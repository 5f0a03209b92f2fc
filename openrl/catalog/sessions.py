"""Sessions: begun, seen, finished."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Row, insert, select, update

from openrl.catalog.database import Records
from openrl.catalog.tables import sessions
from openrl.domain.errors import SessionNotFound
from openrl.domain.ids import SessionId, TenantId
from openrl.domain.session import Session


class Sessions(Records):
    def create_session(
        self,
        tenant: TenantId,
        *,
        tags: Iterable[str],
        user_metadata: Mapping[str, str],
        display_name: str | None,
        sdk_version: str,
        project_id: str | None,
    ) -> SessionId:
        """The id is a uuid: safe in a path, a URL and a depot key."""
        session, now = SessionId(str(uuid4())), datetime.now(UTC)
        values = {
            "id": session,
            "tenant_id": tenant,
            "tags": list(tags),
            "user_metadata": dict(user_metadata),
            "display_name": display_name,
            "sdk_version": sdk_version,
            "project_id": project_id,
            "created_at": now,
            "last_seen_at": now,
        }
        with self._database.writing() as connection:
            connection.execute(insert(sessions).values(values))
        return session

    def session(self, tenant: TenantId, session: SessionId) -> Session:
        """Raises SessionNotFound."""
        with self._database.reading() as connection:
            row = connection.execute(select(sessions).where(_this(tenant, session))).first()
        if row is None:
            raise SessionNotFound(session)
        return _session(row)

    def sessions(self, tenant: TenantId, limit: int, offset: int) -> list[SessionId]:
        newest = sessions.c.created_at.desc(), sessions.c.id
        query = select(sessions.c.id).where(sessions.c.tenant_id == tenant).order_by(*newest)
        with self._database.reading() as connection:
            return [SessionId(id) for id in connection.execute(query.limit(limit).offset(offset)).scalars()]

    def touch_session(self, tenant: TenantId, session: SessionId) -> None:
        """Its client is alive. Raises SessionNotFound."""
        seen = update(sessions).where(_this(tenant, session)).values(last_seen_at=datetime.now(UTC))
        with self._database.writing() as connection:
            if connection.execute(seen).rowcount == 0:
                raise SessionNotFound(session)

    def finish_session(self, tenant: TenantId, session: SessionId, reason: str, detail: str | None) -> None:
        """The first word counts; a repeat changes nothing. Raises SessionNotFound."""
        end = {"finished_at": datetime.now(UTC), "finish_reason": reason, "finish_detail": detail}
        open_still = _this(tenant, session) & sessions.c.finished_at.is_(None)
        with self._database.writing() as connection:
            connection.execute(update(sessions).where(open_still).values(end))
            if connection.execute(select(sessions.c.id).where(_this(tenant, session))).first() is None:
                raise SessionNotFound(session)

    def sessions_over(self, *, finished_before: datetime, silent_before: datetime, limit: int) -> list[Session]:
        """Of all tenants: finished, or without a heartbeat, for so long, and not released yet; the oldest first."""
        over = (sessions.c.finished_at < finished_before) | (sessions.c.last_seen_at < silent_before)
        query = select(sessions).where(over, sessions.c.released_at.is_(None)).order_by(sessions.c.created_at)
        with self._database.reading() as connection:
            return [_session(row) for row in connection.execute(query.limit(limit))]

    def released(self, session: SessionId) -> None:
        """What only this session needed is gone."""
        now = update(sessions).where(sessions.c.id == session).values(released_at=datetime.now(UTC))
        with self._database.writing() as connection:
            connection.execute(now)


def _this(tenant: TenantId, session: SessionId) -> ColumnElement[bool]:
    return (sessions.c.id == session) & (sessions.c.tenant_id == tenant)


def _session(row: Row[Any]) -> Session:
    return Session(
        id=SessionId(row.id),
        tenant=TenantId(row.tenant_id),
        sdk_version=row.sdk_version,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        tags=tuple(row.tags),
        user_metadata=row.user_metadata,
        display_name=row.display_name,
        project_id=row.project_id,
        finished_at=row.finished_at,
        finish_reason=row.finish_reason,
        finish_detail=row.finish_detail,
    )
