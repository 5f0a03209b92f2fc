"""Messages on a pipe between a worker and a child: a length, then JSON. Nothing is ever unpickled or evaluated."""

import json
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

_LENGTH: Final = struct.Struct("!I")
_GLANCE_SECONDS: Final = 0.1  #: how often a watcher looks while a message is awaited


class Ended(Exception):
    """The other side is gone."""


class Overdue(Exception):
    """The time is up."""


class Flooded(Exception):
    """A message is longer than allowed."""


class Garbled(Exception):
    """A message is no JSON object."""


def send(pipe: socket.socket, message: dict[str, Any], until: float | None = None) -> None:
    """`until` is on the monotonic clock. Raises Ended, Overdue."""
    data = json.dumps(message).encode()
    pipe.settimeout(_left(until))
    try:
        pipe.sendall(_LENGTH.pack(len(data)) + data)
    except TimeoutError:
        raise Overdue from None
    except OSError:
        raise Ended from None


def receive(
    pipe: socket.socket, most_bytes: int, until: float | None = None, watch: Callable[[], None] | None = None
) -> dict[str, Any]:
    """The next message. `watch` is called now and then meanwhile. Raises Ended, Overdue, Flooded, Garbled, and what
    `watch` raises."""
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size, until, watch))
    if length > most_bytes:
        raise Flooded
    try:
        message = json.loads(_exactly(pipe, length, until, watch))
    except (ValueError, RecursionError):
        raise Garbled from None
    if not isinstance(message, dict):
        raise Garbled
    return message


def has_word(pipe: socket.socket) -> bool:
    """Whether something can be read at once, be it that the other side is gone."""
    return bool(select.select([pipe], [], [], 0)[0]) if pipe.fileno() >= 0 else True


def _exactly(pipe: socket.socket, count: int, until: float | None, watch: Callable[[], None] | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        left = _left(until)
        pipe.settimeout(left if watch is None else min(left or _GLANCE_SECONDS, _GLANCE_SECONDS))
        try:
            part = pipe.recv(min(count - len(data), 1 << 20))
        except TimeoutError:
            if watch is None:
                raise Overdue from None
            watch()
            continue
        except OSError:
            raise Ended from None
        if not part:
            raise Ended
        data += part
    return bytes(data)


def _left(until: float | None) -> float | None:
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise Overdue
    return left
