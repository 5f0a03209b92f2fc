"""API keys: those of tenants, and the local tenant's that `openrl serve` prints."""

from datetime import UTC, datetime, timedelta

from openrl.catalog.repository import Catalog
from openrl.cli import home
from openrl.cli.text import columns
from openrl.config import Settings
from openrl.domain.errors import KeyRejected, SettingInvalid

LOCAL_TENANT = "local"


def local_key(settings: Settings, given: str | None) -> str:
    """The local tenant's key, known to the catalog; one that was revoked is replaced by a new one.

    Raises SettingInvalid for a given key without the SDK's prefix, KeyRejected for one that was revoked.
    """
    catalog = opened(settings)
    secret = home.local_secret(settings.home, given)
    catalog.create_key(LOCAL_TENANT, key=secret)
    try:
        catalog.tenant_of_key(secret)
    except KeyRejected:
        if given is not None:
            raise
        secret = home.new_local_secret(settings.home)
        catalog.create_key(LOCAL_TENANT, key=secret)
    return secret


def opened(settings: Settings) -> Catalog:
    """The catalog of these settings, its tables up to date."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    catalog = Catalog(settings.catalog_at)
    catalog.migrate()
    return catalog


def migrate(settings: Settings, tenant: str | None, key: str | None) -> str:
    """What was done: the tables are up to date, and the key, where a tenant is named, is that tenant's. Raises
    SettingInvalid where it is missing, FieldInvalid where it cannot be a key or is another tenant's."""
    catalog = opened(settings)
    if tenant is None:
        return "the catalog is up to date"
    if not key:
        raise SettingInvalid("OPENRL_API_KEY", "is not set; --tenant takes the tenant's key from it")
    known, _ = catalog.create_key(tenant, key=key)
    state = "was revoked and stays so" if known.revoked_at else "is known"
    return f"the catalog is up to date; the key {known.prefix}… of {tenant} {state}"


def create(settings: Settings, tenant: str, expires_days: int | None) -> str:
    """A new key of the tenant, which is made if absent. It is not stored: this is the only time it can be seen."""
    expires_at = None if expires_days is None else datetime.now(UTC) + timedelta(days=expires_days)
    _, secret = opened(settings).create_key(tenant, expires_at=expires_at)
    return secret


def listed(settings: Settings) -> str:
    """All keys, with what may be shown of them."""
    keys = opened(settings).keys()
    rows = [("id", "tenant", "key", "made", "expires", "revoked")]
    for key in keys:
        made, expires, revoked = (_day(when) for when in (key.created_at, key.expires_at, key.revoked_at))
        rows.append((str(key.id), key.tenant_name, f"{key.prefix}…", made, expires, revoked))
    return columns(rows)


def revoke(settings: Settings, key_id: int) -> None:
    """It is refused from now on. Raises KeyNotFound."""
    opened(settings).revoke_key(key_id)


def _day(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else "-"
