"""Named checkpoints: published, found, given a time to live, deleted. An expired one reads as missing.

The bytes are in the depot. Methods that take a row away answer its depot key: the row goes first, so that nobody finds
a checkpoint whose bytes are half gone, and whoever called deletes the bytes.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from openrl.catalog.database import insert_once
from openrl.catalog.runs import Runs
from openrl.catalog.samplers import removal
from openrl.catalog.tables import checkpoints
from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.errors import CheckpointExists, CheckpointMissing
from openrl.domain.ids import DepotKey, OpId, RunId, TenantId

_NEWEST = checkpoints.c.created_at.desc(), checkpoints.c.run_id, checkpoints.c.kind, checkpoints.c.name
_OLDEST = checkpoints.c.created_at, checkpoints.c.kind, checkpoints.c.name


class Checkpoints(Runs):
    def publish_checkpoint(self, checkpoint: Checkpoint, *, overwrite: bool) -> DepotKey | None:
        """Enter it under its path; answers the key of the one that stood there, whose bytes are no longer needed.

        The same operation again changes nothing, so a replay is harmless. An expired checkpoint does not stand in the
        way. Raises CheckpointExists, RunNotFound.
        """
        try:
            with self._database.writing() as connection:
                if insert_once(connection, checkpoints, _values(checkpoint)):
                    return None
                return _replace(connection, checkpoint, overwrite)
        except IntegrityError:
            self.run(checkpoint.tenant, checkpoint.path.run)  # raises if it is that
            raise

    def checkpoint(self, tenant: TenantId, path: CheckpointPath) -> Checkpoint:
        """Raises CheckpointMissing."""
        with self._database.reading() as connection:
            row = connection.execute(select(checkpoints).where(_this(tenant, path))).first()
        if row is None:
            raise CheckpointMissing(str(path))
        return _checkpoint(row)

    def run_checkpoints(self, tenant: TenantId, run: RunId) -> list[Checkpoint]:
        """Oldest first; none for a run that is not the tenant's."""
        query = select(checkpoints).where(_living(tenant), checkpoints.c.run_id == run)
        with self._database.reading() as connection:
            return [_checkpoint(row) for row in connection.execute(query.order_by(*_OLDEST))]

    def checkpoints(self, tenant: TenantId, limit: int, offset: int) -> tuple[list[Checkpoint], int]:
        """One page, and how many there are in all."""
        living = _living(tenant)
        page = select(checkpoints).where(living).order_by(*_NEWEST).limit(limit).offset(offset)
        with self._database.reading() as connection:
            total = connection.execute(select(func.count()).select_from(checkpoints).where(living)).scalar_one()
            return [_checkpoint(row) for row in connection.execute(page)], total

    def delete_checkpoint(self, tenant: TenantId, path: CheckpointPath) -> DepotKey:
        """Answers the key whose bytes are no longer needed; its samplers are marked. Raises CheckpointMissing."""
        gone = delete(checkpoints).where(_this(tenant, path)).returning(checkpoints.c.depot_key)
        with self._database.writing() as connection:
            key = connection.execute(gone).scalar()
            if key is None:
                raise CheckpointMissing(str(path))
            connection.execute(removal(DepotKey(key)))
        return DepotKey(key)

    def set_checkpoint_ttl(self, tenant: TenantId, path: CheckpointPath, ttl_seconds: int | None) -> None:
        """From now on; None keeps it for ever. Raises CheckpointMissing."""
        end = datetime.now(UTC) + timedelta(seconds=ttl_seconds) if ttl_seconds is not None else None
        with self._database.writing() as connection:
            changed = update(checkpoints).where(_this(tenant, path)).values(expires_at=end)
            if connection.execute(changed).rowcount == 0:
                raise CheckpointMissing(str(path))

    def expired_checkpoints(self, limit: int, *, skip: int = 0) -> list[Checkpoint]:
        """Of all tenants, the longest expired first, without the first `skip`: their bytes may go, and then
        `forget_checkpoint` the row."""
        expired = checkpoints.c.expires_at <= datetime.now(UTC)
        query = (
            select(checkpoints)
            .where(expired)
            .order_by(checkpoints.c.expires_at, checkpoints.c.depot_key)
            .offset(skip)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [_checkpoint(row) for row in connection.execute(query)]

    def forget_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Remove exactly this row; one that was published under the path meanwhile stays."""
        this = _at(checkpoint.path) & (checkpoints.c.depot_key == checkpoint.key)
        with self._database.writing() as connection:
            connection.execute(delete(checkpoints).where(this))
            connection.execute(removal(checkpoint.key))


def _replace(connection: Connection, checkpoint: Checkpoint, overwrite: bool) -> DepotKey | None:
    """The path is taken; the row stays locked until the transaction ends."""
    at = _at(checkpoint.path) & (checkpoints.c.tenant_id == checkpoint.tenant)
    standing = connection.execute(select(checkpoints).where(at).with_for_update()).first()
    if standing is None:  # deleted since, or another tenant's run: in both cases there is nothing to replace
        raise CheckpointMissing(str(checkpoint.path))
    if standing.op_id == checkpoint.op:
        return None
    expired = standing.expires_at is not None and standing.expires_at <= datetime.now(UTC)
    if not overwrite and not expired:
        raise CheckpointExists(str(checkpoint.path))
    connection.execute(update(checkpoints).where(at).values(_values(checkpoint)))
    if standing.depot_key == checkpoint.key:
        return None
    connection.execute(removal(DepotKey(standing.depot_key)))
    return DepotKey(standing.depot_key)


def _at(path: CheckpointPath) -> ColumnElement[bool]:
    return (
        (checkpoints.c.run_id == path.run) & (checkpoints.c.kind == path.kind.value) & (checkpoints.c.name == path.name)
    )


def _living(tenant: TenantId) -> ColumnElement[bool]:
    end = checkpoints.c.expires_at
    return (checkpoints.c.tenant_id == tenant) & (end.is_(None) | (end > datetime.now(UTC)))


def _this(tenant: TenantId, path: CheckpointPath) -> ColumnElement[bool]:
    return _living(tenant) & _at(path)


def _values(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "run_id": checkpoint.path.run,
        "kind": checkpoint.path.kind.value,
        "name": checkpoint.path.name,
        "tenant_id": checkpoint.tenant,
        "depot_key": checkpoint.key,
        "op_id": checkpoint.op,
        "size_bytes": checkpoint.size_bytes,
        "has_optimizer": checkpoint.has_optimizer,
        "user_metadata": checkpoint.user_metadata,
        "created_at": checkpoint.created_at,
        "expires_at": checkpoint.expires_at,
    }


def _checkpoint(row: Row[Any]) -> Checkpoint:
    return Checkpoint(
        path=CheckpointPath(run=RunId(row.run_id), kind=CheckpointKind(row.kind), name=row.name),
        tenant=TenantId(row.tenant_id),
        key=DepotKey(row.depot_key),
        op=OpId(row.op_id),
        size_bytes=row.size_bytes,
        created_at=row.created_at,
        has_optimizer=row.has_optimizer,
        expires_at=row.expires_at,
        user_metadata=row.user_metadata,
    )
