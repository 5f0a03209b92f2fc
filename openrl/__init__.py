"""OpenRL: a self-hosted post-training service that speaks the Tinker API."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openrl.client import Client

__version__ = "0.1.0"
__all__ = ["Client", "__version__"]


def __getattr__(name: str) -> object:
    """`openrl.Client`, imported when it is first asked for, so that servers do not load an HTTP client."""
    if name == "Client":
        from openrl.client import Client

        return Client
    raise AttributeError(f"module 'openrl' has no attribute {name!r}")
