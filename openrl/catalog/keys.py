"""Tenants and the API keys that stand for them. Secrets are not kept, only their sha256."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, Select, select, update

from openrl.catalog.database import Records, insert_once
from openrl.catalog.tables import api_keys, tenants
from openrl.domain.errors import FieldInvalid, KeyNotFound, KeyRejected
from openrl.domain.ids import TenantId
from openrl.domain.tenant import KEY_START, ApiKey, new_secret


class Keys(Records):
    def create_key(
        self, tenant_name: str, *, key: str | None = None, expires_at: datetime | None = None
    ) -> tuple[ApiKey, str]:
        """A key and its secret, which cannot be shown again. The tenant is made if there is none of that name.

        A `key` chosen by the operator that exists already is answered as it stands, revoked or not. Raises FieldInvalid
        where it does not start with `tml-` or is another tenant's.
        """
        secret = _checked(key) if key is not None else new_secret()
        now, digest = datetime.now(UTC), _digest(secret)
        with self._database.writing() as connection:
            values = {
                "tenant_id": _tenant(connection, tenant_name, now),
                "digest": digest,
                "prefix": _prefix(secret),
                "created_at": now,
                "expires_at": expires_at,
            }
            insert_once(connection, api_keys, values)
            found = _key(connection.execute(_keys().where(api_keys.c.digest == digest)).one())
        if found.tenant_name != tenant_name:
            raise FieldInvalid("key", f"belongs to tenant {found.tenant_name!r} already; choose another")
        return found, secret

    def keys(self) -> list[ApiKey]:
        """All tenants' keys, oldest first."""
        with self._database.reading() as connection:
            return [_key(row) for row in connection.execute(_keys().order_by(api_keys.c.id))]

    def revoke_key(self, key_id: int) -> None:
        """It stays in the list. Raises KeyNotFound."""
        still = (api_keys.c.id == key_id) & api_keys.c.revoked_at.is_(None)
        with self._database.writing() as connection:
            connection.execute(update(api_keys).where(still).values(revoked_at=datetime.now(UTC)))
            if connection.execute(select(api_keys.c.id).where(api_keys.c.id == key_id)).first() is None:
                raise KeyNotFound(key_id)

    def key_of(self, secret: str) -> ApiKey:
        """Raises KeyRejected, telling whether it is unknown, revoked or expired. Found by its digest: the time it takes
        says nothing about how much of a guess was right."""
        with self._database.reading() as connection:
            row = connection.execute(_keys().where(api_keys.c.digest == _digest(secret))).first()
        if row is None:
            raise KeyRejected("unknown key; ask whoever runs this server for one")
        return _accepted(_key(row), datetime.now(UTC))

    def tenant_of_key(self, secret: str) -> TenantId:
        """Raises KeyRejected as `key_of` does."""
        return self.key_of(secret).tenant


def _accepted(key: ApiKey, now: datetime) -> ApiKey:
    if key.revoked_at is not None:
        raise KeyRejected("this key was revoked; ask whoever runs this server for a new one")
    if key.expires_at is not None and key.expires_at <= now:
        raise KeyRejected(f"this key expired at {key.expires_at:%Y-%m-%d %H:%M} UTC; ask for a new one")
    return key


def _tenant(connection: Connection, name: str, now: datetime) -> str:
    insert_once(connection, tenants, {"id": uuid4().hex, "name": name, "created_at": now})
    return str(connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar_one())


def _checked(secret: str) -> str:
    if not secret.startswith(KEY_START) or len(secret) == len(KEY_START):
        raise FieldInvalid("key", f"must be {KEY_START!r} and something behind it: the SDK accepts no other")
    if not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise FieldInvalid("key", "travels in an HTTP header; use letters, digits, '-' and '_'")
    return secret


def _digest(secret: str) -> str:
    """Plain sha256, not a slow hash: the keys we make have 192 random bits, and every request is looked up by it."""
    return sha256(secret.encode()).hexdigest()


def _prefix(secret: str) -> str:
    """Enough to tell keys apart; a short one chosen by hand is not given away."""
    return secret[: 8 if len(secret) >= 16 else len(KEY_START)]


def _keys() -> Select[Any]:
    return select(api_keys, tenants.c.name.label("tenant_name")).join(tenants)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant=TenantId(row.tenant_id),
        tenant_name=row.tenant_name,
        prefix=row.prefix,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
