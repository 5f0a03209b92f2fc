"""The port on which a process tells its operators of itself: `GET /metrics`, `/healthz`, `/readyz`.

Plain HTTP without keys, for the inside of a cluster. Threads of its own answer, so that it tells of a process that is
stuck, too.
"""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from openrl.config import Metrics
from openrl.domain.errors import SettingInvalid

log = logging.getLogger(__name__)

Trouble = Callable[[], str]
"""Why something is not as it should be; empty where it is."""

REQUEST_SECONDS: Final = 10.0  #: for whoever asks to send its request


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What there is to tell."""

    registry: CollectorRegistry
    sick: Trouble  #: why only a restart helps
    unready: Trouble  #: why no work should come here


@contextmanager
def telling(settings: Metrics, told: Told) -> Iterator[int]:
    """Answers requests until the block ends; the port, 0 where it is off. Raises SettingInvalid where it cannot be
    had."""
    if not settings.port:
        yield 0
        return
    with listening(settings, told) as port:
        yield port


@contextmanager
def listening(settings: Metrics, told: Told) -> Iterator[int]:
    """The same where port 0 takes a free one."""
    with _server(settings, told) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
        thread.start()
        port = int(server.server_address[1])
        log.info("metrics on http://%s:%d/metrics", settings.host, port, extra={"action": "start"})
        try:
            yield port
        finally:
            server.shutdown()


def _server(settings: Metrics, told: Told) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET

        def server_bind(self) -> None:  # not HTTPServer's, which looks the host's name up: that may take long
            TCPServer.server_bind(self)

    class Handler(_Handler):
        pages = _pages(told)

    try:
        return Server((settings.host, settings.port), Handler)
    except OSError as error:
        problem = (
            f"cannot listen on {settings.host} port {settings.port} ({error.strerror}); choose another, or 0 for none"
        )
        raise SettingInvalid("OPENRL_METRICS__PORT", problem) from error


Page = Callable[[], tuple[int, str, bytes]]
"""Status, content type, body."""


def _pages(told: Told) -> dict[str, Page]:
    return {
        "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(told.registry)),
        "/healthz": lambda: _verdict(told.sick()),
        "/readyz": lambda: _verdict(told.unready()),
    }


def _verdict(trouble: str) -> tuple[int, str, bytes]:
    return (503 if trouble else 200, "text/plain; charset=utf-8", f"{trouble or 'ok'}\n".encode())


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    pages: dict[str, Page]

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            self._send(404, "text/plain", f"there are {', '.join(self.pages)}\n".encode())
            return
        try:
            self._send(*page())
        except Exception as error:
            log.exception("%s could not be told", self.path, extra={"action": "tell"})
            self._send(500, "text/plain", f"{type(error).__name__}; the log has more\n".encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Asked every few seconds: nobody reads it."""
