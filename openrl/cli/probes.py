"""Whether a component can do its work yet, asked from outside. Every answer comes within a second."""

import http.client
from collections.abc import Callable

import redis

from openrl.cli.errors import BrokerUnreachable
from openrl.domain.errors import LedgerUnreachable
from openrl.ledger.roster import RedisRoster

Probe = Callable[[int], bool]
"""Asked with the process id."""

_TIMEOUT_SECONDS = 0.5


def connect(redis_url: str) -> redis.Redis:
    """A client that gives up soon."""
    return redis.Redis.from_url(
        redis_url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS, retry=None
    )


def broker_answers(client: redis.Redis) -> Probe:
    """PONG; not while it still reads its files."""

    def answers(_pid: int) -> bool:
        try:
            return bool(client.ping())
        except (redis.RedisError, OSError):
            return False

    return answers


def http_answers(host: str, port: int, path: str) -> Probe:
    """200 on GET `path`."""

    def answers(_pid: int) -> bool:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return answers


def worker_announced(client: redis.Redis) -> Probe:
    """The roster knows a worker of that process id."""
    roster = RedisRoster(client)

    def announced(pid: int) -> bool:
        try:
            return any(worker.pid == pid for worker in roster.workers())
        except (LedgerUnreachable, redis.RedisError):
            return False

    return announced


def require_broker(redis_url: str) -> None:
    """Raises BrokerUnreachable, the password left out of its sentence."""
    try:
        connect(redis_url).ping()
    except (redis.RedisError, OSError, ValueError) as error:
        raise BrokerUnreachable(without_password(redis_url), str(error)) from error


def without_password(url: str) -> str:
    before, at, after = url.rpartition("@")
    scheme, _, _ = before.partition("://")
    return f"{scheme}://…@{after}" if at else url
