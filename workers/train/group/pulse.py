"""Notices that a rank is gone, whatever the others are waiting for. Knows sockets and clocks only.

Each rank but 0 keeps a connection to rank 0; both ends send a byte now and then. A connection that closes tells of a
death at once, one that stays silent of a machine that hangs or is cut off. Without it a rank would wait for a dead one
until a limit of minutes, or for ever.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

BEAT_SECONDS = 1.0
STRANGER_SECONDS = 5.0  #: for whoever connects to say who it is
_TOKEN_BYTES = 16

#: Called from a thread of the pulse, with what happened; must not return before the process is as good as gone.
Lost = Callable[[str], None]


class Pulse:
    """`lost` is called at most once for each connection."""

    def __init__(self, lost: Lost, silent_seconds: float) -> None:
        self._lost, self._silent_seconds = lost, silent_seconds
        self._ending = threading.Event()
        self._connections: list[socket.socket] = []
        self._token = b""
        self._server: socket.socket | None = None

    def listen(self) -> bytes:
        """Rank 0: opens a port. Answers what the others must know to `connect`."""
        self._server = _listening()
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        port: int = self._server.getsockname()[1]
        return port.to_bytes(2, "big") + self._token

    def accept(self, count: int, wait_seconds: float) -> None:
        """Rank 0: takes in `count` connections and watches them. Raises TimeoutError; strangers do not count."""
        assert self._server is not None, "listen first"
        deadline = time.monotonic() + wait_seconds
        while len(self._connections) < count:
            self._server.settimeout(max(0.001, deadline - time.monotonic()))
            connection, _ = self._server.accept()
            connection.settimeout(STRANGER_SECONDS)
            if secrets.compare_digest(_read(connection, _TOKEN_BYTES), self._token):
                self._watch(connection, "a rank")
            else:
                connection.close()
        self._server.close()

    def connect(self, host: str, where: bytes, wait_seconds: float) -> None:
        """Any other rank: connects to rank 0 on `host` and watches it. Raises OSError."""
        connection = socket.create_connection((host, int.from_bytes(where[:2], "big")), timeout=wait_seconds)
        connection.sendall(where[2:])
        self._watch(connection, "rank 0")

    def end(self) -> None:
        """From now on nobody is missed."""
        self._ending.set()

    def close(self) -> None:
        self.end()
        for connection in self._connections:
            connection.close()

    def _watch(self, connection: socket.socket, who: str) -> None:
        self._connections.append(connection)
        threading.Thread(target=self._listen_to, args=(connection, who), name="pulse", daemon=True).start()

    def _listen_to(self, connection: socket.socket, who: str) -> None:
        heard = time.monotonic()
        due = heard
        while not self._ending.is_set():
            now = time.monotonic()
            if now - heard > self._silent_seconds:
                return self._miss(f"{who} was silent for {now - heard:.0f} s")
            try:
                if now >= due:
                    connection.sendall(b".")
                    due = now + BEAT_SECONDS
                connection.settimeout(max(0.01, due - now))
                if not connection.recv(64):
                    return self._miss(f"{who} is gone")
                heard = time.monotonic()
            except TimeoutError:
                continue
            except OSError as error:
                return self._miss(f"{who} is gone ({error})")
        return None

    def _miss(self, what: str) -> None:
        if not self._ending.is_set():
            self._lost(what)


def _listening() -> socket.socket:
    """On all addresses of this machine, at a free port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _read(connection: socket.socket, count: int) -> bytes:
    """`count` bytes, or fewer if the other end closes or keeps us waiting."""
    data = b""
    try:
        while len(data) < count and (more := connection.recv(count - len(data))):
            data += more
    except OSError:
        log.debug("a connection said nothing of use", exc_info=True)
    return data
