"""One SDK client's life on the server."""

from dataclasses import dataclass, field
from datetime import datetime

from openrl.domain.ids import SessionId, TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: SessionId
    tenant: TenantId
    sdk_version: str
    created_at: datetime
    last_seen_at: datetime  #: the latest heartbeat
    tags: tuple[str, ...] = ()
    user_metadata: dict[str, str] = field(default_factory=dict)
    display_name: str | None = None
    project_id: str | None = None
    finished_at: datetime | None = None  #: closing is optional: a client that crashed just stops its heartbeats
    finish_reason: str | None = None  #: as the client gave it: success, errored, interrupted
    finish_detail: str | None = None
