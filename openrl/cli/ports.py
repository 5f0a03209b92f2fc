"""Ports to listen on."""

import errno
import socket

from openrl.cli.errors import PortTaken
from openrl.domain.errors import SettingInvalid

BACKLOG = 2048
LOCAL = "127.0.0.1"


def listening(what: str, host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. `what` names it for people.

    Raises PortTaken, or SettingInvalid for an address that is not this machine's or a port that is not ours to take.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # takes over from a server that has just gone
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(what, port) from error
        problem = f"cannot listen on {host} port {port} ({error.strerror}); choose another address or port"
        raise SettingInvalid(what, problem) from error
    return sock


def require_port(what: str, host: str, port: int) -> None:
    """Raises as `listening` does."""
    listening(what, host, port).close()


def free_port() -> int:
    """A port nobody listened on a moment ago."""
    with listening("any port", LOCAL, 0) as sock:
        return int(sock.getsockname()[1])
