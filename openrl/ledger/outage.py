"""What a Redis that is away looks like to whoever asked it."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from openrl.domain.errors import LedgerFull, LedgerUnreachable


@contextmanager
def told_apart() -> Iterator[None]:
    """Raises LedgerUnreachable where Redis could not be reached or did not answer in time, LedgerFull where it has no
    memory left; lets other errors fly."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise LedgerUnreachable(str(error)) from error
    except redis.OutOfMemoryError as error:
        raise LedgerFull(str(error)) from error
