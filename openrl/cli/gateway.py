"""`openrl gateway`: the HTTP server. Binds its port before it loads anything, so that a taken one is told at once."""

import logging
import socket

from openrl.config import Settings
from openrl.domain.errors import PortTaken

BACKLOG = 2048
#: Long polls are open nearly always; whoever waits in one asks again elsewhere.
GRACEFUL_SECONDS = 2

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises PortTaken and other OperatorErrors."""
    with listening(settings.gateway.host, settings.gateway.port) as sock:
        import uvicorn

        from openrl.gateway.app import create_app

        config = uvicorn.Config(
            create_app(settings),
            access_log=False,
            backlog=BACKLOG,
            log_config=None,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
        )
        log.info("listening on http://%s:%d", *sock.getsockname()[:2])
        uvicorn.Server(config).run(sockets=[sock])


def listening(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)  # a port in TIME_WAIT binds, one that somebody listens on fails here at the latest
    except OSError as error:
        sock.close()
        raise PortTaken("gateway", port) from error
    return sock
