"""OpenRL: a self-hosted post-training service that speaks the Tinker API."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openrl.client import FULL_RUN_HEADERS, AsyncClient, Client, Prompt, Reward, to_datums

__version__ = "0.1.0"
__all__ = ["FULL_RUN_HEADERS", "AsyncClient", "Client", "Prompt", "Reward", "__version__", "to_datums"]


def __getattr__(name: str) -> object:
    """What is the client's, imported when it is first asked for, so that servers do not load an HTTP client."""
    if name in __all__:
        from openrl import client

        return getattr(client, name)
    raise AttributeError(f"module 'openrl' has no attribute {name!r}")
