"""A server that webhooks post to, on this machine, scripted."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workers.reward.posting import Poster, look_up

TLS = ssl.create_default_context()  #: made once: it reads all certificates there are


def posting(seconds: float = 5.0) -> Poster:
    return Poster(seconds=seconds, tls=TLS, look_up=look_up)


@dataclass
class Endpoint:
    port: int
    answer: Callable[[dict[str, Any]], Any]  #: by the body: a status, bytes, JSON, or a function of the handler
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)  #: headers and body of each post

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/score"


def lengths(body: dict[str, Any]) -> Any:
    """A text's score is its length."""
    return {"scores": [{"value": float(len(each["text"]))} for each in body["texts"]]}


@contextmanager
def endpoint(tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            up.seen.append((dict(self.headers), body))
            answer = up.answer(json.loads(body))
            if callable(answer):
                answer(self)
                return
            status, data = (answer, b"") if isinstance(answer, int) else (200, answer)
            data = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            if status in (301, 302, 307, 308):
                self.send_header("location", f"{up.url}/elsewhere")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that leave are what is tested
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    up = Endpoint(server.server_address[1], lengths)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield up
    server.shutdown()
    server.server_close()
    thread.join()
