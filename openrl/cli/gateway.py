"""`openrl gateway`: the HTTP server. Binds its port before it loads anything, so that a taken one is told at once."""

import logging

from openrl import importing
from openrl.cli.open_files import allow_many
from openrl.cli.ports import BACKLOG, listening, require_port
from openrl.config import Settings

#: Long polls are open nearly always; whoever waits in one asks again elsewhere.
GRACEFUL_SECONDS = 2
#: Longer than a client rests between two polls, so that its connections are not closed under its hands.
KEEP_ALIVE_SECONDS = 75

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises OperatorError: a taken port, a catalog out of reach."""
    allow_many()
    if settings.metrics.port:
        require_port("OPENRL_METRICS__PORT", settings.metrics.host, settings.metrics.port)
    with listening("gateway", settings.gateway.host, settings.gateway.port) as sock:
        with importing.many():
            import uvicorn

            from openrl.gateway.app import create_app

        app = create_app(settings)
        config = uvicorn.Config(
            app,
            access_log=False,
            backlog=BACKLOG,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
        )
        log.info("listening on http://%s:%d", *sock.getsockname()[:2])
        try:
            uvicorn.Server(config).run(sockets=[sock])
        finally:  # uvicorn keeps to itself what a start ended with, and exits
            if app.state.refused is not None:
                raise app.state.refused
