"""A client for the ledger's Redis. What ledger, notices and roster ask may be asked again, so it tries by itself."""

from typing import Final

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

#: No bound of its own: a process has as many as it has threads that ask at once, and one too many would lose a result.
CONNECTIONS: Final = 1 << 31


def connect(redis_url: str, *, retries: int, longest_pause_seconds: float) -> redis.Redis:
    """Connects to nothing yet. A call that fails is tried again `retries` times, after pauses that double up to the
    longest; then it raises redis.ConnectionError or redis.TimeoutError."""
    return redis.Redis.from_url(
        redis_url,
        max_connections=CONNECTIONS,
        retry=Retry(ExponentialBackoff(cap=longest_pause_seconds, base=0.05), retries=retries),
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
        socket_timeout=10,
        socket_connect_timeout=5,
        health_check_interval=15,
    )
