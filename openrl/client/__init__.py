"""OpenRL's own Python client: what the service offers beyond the Tinker API. Needs httpx and nothing of the server."""

from openrl.client.async_client import AsyncClient
from openrl.client.async_rollouts import AsyncBatch
from openrl.client.client import Client
from openrl.client.datums import to_datums
from openrl.client.errors import (
    BatchFailed,
    ClientError,
    KeyMissing,
    RequestRefused,
    ServiceUnreachable,
    TinkerMissing,
    WorkFailed,
)
from openrl.client.groups import BatchState, Dropped, Group, RewardSummary, Rollout, Timings
from openrl.client.headers import FULL_RUN_HEADERS
from openrl.client.request import Prompt, Reward
from openrl.client.rollouts import Batch
from openrl.client.scores import Score

__all__ = [
    "FULL_RUN_HEADERS",
    "AsyncBatch",
    "AsyncClient",
    "Batch",
    "BatchFailed",
    "BatchState",
    "Client",
    "ClientError",
    "Dropped",
    "Group",
    "KeyMissing",
    "Prompt",
    "RequestRefused",
    "Reward",
    "RewardSummary",
    "Rollout",
    "Score",
    "ServiceUnreachable",
    "Timings",
    "TinkerMissing",
    "WorkFailed",
    "to_datums",
]
