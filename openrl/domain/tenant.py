"""Owners, and the keys they show."""

from dataclasses import dataclass
from datetime import datetime
from secrets import token_urlsafe

from openrl.domain.ids import TenantId

KEY_START = "tml-"  #: the SDK refuses any other before it sends a request


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What is known of a key once its secret has been handed over. The secret itself is not."""

    id: int
    tenant: TenantId
    tenant_name: str
    prefix: str  #: the first characters of the secret, to tell keys apart by eye
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


def new_secret() -> str:
    """What makes a key: 192 random bits behind the prefix."""
    return KEY_START + token_urlsafe(24)
