"""Where the reward `webhook` may post, and how what it posts is signed. Pure.

The operator lists beginnings of URLs; a request names a URL, which must begin like one of them: the same scheme, host
and port, and a path below its path.
"""

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from openrl.domain.errors import FieldInvalid

TIMESTAMP: Final = "OpenRL-Timestamp"
SIGNATURE: Final = "OpenRL-Signature"
URL_CHARS: Final = 2000
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS: Final = {"https": 443, "http": 80}
#: Dots, slashes and backslashes in disguise: a server may take them for what they are.
_DISGUISED: Final = ("%2e", "%2f", "%5c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    scheme: str
    host: str  #: in lower case; an IPv6 address without brackets
    port: int
    path: str
    query: str = ""

    @property
    def loopback(self) -> bool:
        return self.host in LOOPBACK

    def __str__(self) -> str:
        """Without the query, which may hold secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def target_of(url: str) -> Target:
    """Raises ValueError for a URL that is none, or that could be read in two ways."""
    if not url or len(url) > URL_CHARS or not url.isascii() or not url.isprintable() or set(url) & set(' \\#"<>'):
        raise ValueError(f"must be a URL of 1 to {URL_CHARS} plain characters without a fragment")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be an https:// URL with a host and without a user")
    target = Target(
        scheme=parts.scheme,
        host=parts.hostname.lower().rstrip("."),
        port=parts.port or _PORTS[parts.scheme],
        path=parts.path or "/",
        query=parts.query,
    )
    if target.scheme == "http" and not target.loopback:
        raise ValueError("must begin with https://; http:// is for this machine's own address only")
    if any(part in (".", "..") for part in target.path.split("/")) or any(d in target.path.lower() for d in _DISGUISED):
        raise ValueError("must have a path without . and .. and their disguises")
    return target


def require_allowed(url: str, field: str, beginnings: tuple[str, ...]) -> Target:
    """Where to post. Raises FieldInvalid for a URL that begins like none of the allowed ones."""
    try:
        target = target_of(url)
    except ValueError as error:
        raise FieldInvalid(field, str(error)) from None
    if not any(_begins(target, target_of(beginning)) for beginning in beginnings):
        problem = f"{target} is not among the URLs that the operator allows (OPENRL_REWARD__WEBHOOK_URLS)"
        raise FieldInvalid(field, problem)
    return target


def signature(key: bytes, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over the timestamp, a full stop and the body, in hexadecimal."""
    return hmac.new(key, timestamp.encode() + b"." + body, sha256).hexdigest()


def _begins(target: Target, beginning: Target) -> bool:
    if (target.scheme, target.host, target.port) != (beginning.scheme, beginning.host, beginning.port):
        return False
    return target.path == beginning.path or target.path.startswith(beginning.path.rstrip("/") + "/")
