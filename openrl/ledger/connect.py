"""A client for the ledger's Redis. What ledger, notices and roster ask may be asked again, so it tries by itself."""

from typing import Final

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from openrl.domain.errors import SettingInvalid

#: No bound of its own: a process has as many as it has threads that ask at once, and one too many would lose a result.
CONNECTIONS: Final = 1 << 31
UNREADABLE: Final = (
    "is no URL of a broker, as redis://:PASSWORD@HOST:6379/0, or rediss:// for TLS; in a password "
    "`/`, `@`, `#`, `?` and `%` are written as %2F, %40, %23, %3F and %25"
)


def connect(redis_url: str, *, retries: int, longest_pause_seconds: float) -> redis.Redis:
    """Connects to nothing yet. A call that fails is tried again `retries` times, after pauses that double up to the
    longest; then it raises redis.ConnectionError or redis.TimeoutError. Raises SettingInvalid for a URL that cannot
    be read."""
    try:
        client = redis.Redis.from_url(
            redis_url,
            max_connections=CONNECTIONS,
            retry=Retry(ExponentialBackoff(cap=longest_pause_seconds, base=0.05), retries=retries),
            retry_on_error=[RedisConnectionError, RedisTimeoutError],
            socket_timeout=10,
            socket_connect_timeout=5,
            health_check_interval=15,
        )
    except ValueError:  # its sentence may hold a part of the password
        raise SettingInvalid("OPENRL_REDIS_URL", UNREADABLE) from None
    try:
        client.connection_pool.make_connection()
    except (TypeError, redis.RedisError) as error:
        raise SettingInvalid("OPENRL_REDIS_URL", f"says after its `?` what cannot be: {error}") from error
    return client
