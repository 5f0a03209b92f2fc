"""A service that is up, asked as any client asks it."""

import os
from typing import Any, Final

from openrl.cli.errors import NotReached
from openrl.cli.home import read_status
from openrl.client.client import address
from openrl.client.errors import ClientError, KeyMissing
from openrl.client.transport import Transport
from openrl.config import Settings

PATIENCE_SECONDS: Final = 3.0  #: somebody watches


def ask(settings: Settings, url: str | None, path: str) -> Any:
    """The JSON at that path of OpenRL's own API. Without an address, that of `openrl serve` on this machine is taken,
    with the local tenant's key. Raises NotReached, NotServing."""
    try:
        transport = Transport(*where(settings, url), patience_seconds=PATIENCE_SECONDS)
        try:
            return transport.send("GET", f"/openrl/v1/{path}")
        finally:
            transport.close()
    except ClientError as error:
        raise NotReached(str(error)) from error


def where(settings: Settings, url: str | None) -> tuple[str, str]:
    """Address and key. Raises NotServing, KeyMissing."""
    if url or os.environ.get("OPENRL_BASE_URL") or os.environ.get("TINKER_BASE_URL"):
        return address(url, None)
    here = str(read_status(settings.home)["url"])
    try:
        return address(here, None)
    except KeyMissing:
        return here, (settings.home / "local_key").read_text().strip()
