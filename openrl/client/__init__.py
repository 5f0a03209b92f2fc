"""OpenRL's own Python client: what the service offers beyond the Tinker API. Needs httpx and nothing of the server."""

from openrl.client.client import Client
from openrl.client.errors import ClientError, KeyMissing, RequestRefused, ServiceUnreachable, WorkFailed
from openrl.client.headers import FULL_RUN_HEADERS
from openrl.client.scores import Score

__all__ = [
    "FULL_RUN_HEADERS",
    "Client",
    "ClientError",
    "KeyMissing",
    "RequestRefused",
    "Score",
    "ServiceUnreachable",
    "WorkFailed",
]
