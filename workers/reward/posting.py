"""One POST to somebody else's server: to an address that is allowed, within a time, with an answer of bounded length.

No redirect is followed, no proxy is asked, and no connection is kept. The host is looked up once, its addresses are
checked, and these are connected to: what its name means a moment later does not matter.
"""

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

import httpcore

from openrl.domain.webhook import LOOPBACK, Target

ANSWER_BYTES: Final = 4 << 20
LOOK_UP_SECONDS: Final = 5.0  #: that the system may take to find a host
LOOK_SECONDS: Final = 0.2  #: between two looks at whether anybody still wants the answer
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: IPv6 addresses of these stand for the IPv4 address in their last 32 bits.
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
#: Where clouds answer their machines, outside of the networks in which nobody is posted to.
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "192.0.0.192", "fd00:ec2::254")))


class PostFailed(Exception):
    """There is no answer to be used. `passing` where another try may help."""

    def __init__(self, why: str, *, passing: bool) -> None:
        super().__init__(why)
        self.passing = passing


class CalledOff(Exception):
    """Nobody wants the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poster:
    seconds: float  #: that one post may take
    private: bool = False  #: whether hosts may have addresses of private networks
    tls: ssl.SSLContext
    look_up: Callable[[str, int], list[str]]
    look_up_seconds: float = LOOK_UP_SECONDS

    def post(self, target: Target, headers: Mapping[str, str], body: bytes, over: threading.Event) -> bytes:
        """The body of a 200. Raises PostFailed, and CalledOff once `over` is set."""
        backend = _Backend(self, time.monotonic() + self.seconds, over)
        sent = {"host": _host(target), "accept": "application/json", "content-type": "application/json", **headers}
        with httpcore.ConnectionPool(ssl_context=self.tls, network_backend=backend) as pool:
            try:
                with pool.stream("POST", _url(target), headers=list(sent.items()), content=body) as response:
                    return _read(response)
            except httpcore.TimeoutException:
                raise PostFailed(f"did not answer within {self.seconds:g} s", passing=True) from None
            except (httpcore.NetworkError, httpcore.ProtocolError) as error:
                raise PostFailed(f"did not answer: {str(error) or type(error).__name__}", passing=True) from None

    def addresses(self, host: str, port: int, loopback: bool, over: threading.Event) -> list[str]:
        """Those of the host, each of them checked. Raises PostFailed, CalledOff."""
        try:
            found = self._found(host, port, over)
        except OSError as error:
            raise PostFailed(f"cannot be found: {error}", passing=True) from None
        for address in found:
            if not allowed(ipaddress.ip_address(address), loopback=loopback, private=self.private):
                raise PostFailed("has an address that may not be posted to", passing=False)
        return found

    def _found(self, host: str, port: int, over: threading.Event) -> list[str]:
        """What `look_up` answers. The system's own cannot be called off: it has a thread, which nobody waits for."""
        answer: Future[list[str]] = Future()
        threading.Thread(target=_look_up, args=(answer, self.look_up, host, port), daemon=True).start()
        until = time.monotonic() + min(self.seconds, self.look_up_seconds)
        while not answer.done():
            if over.is_set():
                raise CalledOff
            if time.monotonic() > until:
                raise TimeoutError(f"its name was not told within {min(self.seconds, self.look_up_seconds):g} s")
            wait((answer,), timeout=min(LOOK_SECONDS, max(0.0, until - time.monotonic())))
        return answer.result()


def _look_up(answer: Future[list[str]], look_up: Callable[[str, int], list[str]], host: str, port: int) -> None:
    try:
        answer.set_result(look_up(host, port))
    except Exception as error:
        answer.set_exception(error)


def poster(*, seconds: float, private: bool) -> Poster:
    """For the real network."""
    return Poster(seconds=seconds, private=private, tls=ssl.create_default_context(), look_up=look_up)


def allowed(address: Address, *, loopback: bool, private: bool) -> bool:
    """`loopback`: the URL names this machine itself, and must mean it."""
    while (inside := _inside(address)) is not None:
        address = inside
    if loopback or address.is_loopback:
        return loopback and address.is_loopback
    if address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA:
        return False
    if address.is_reserved or (isinstance(address, ipaddress.IPv6Address) and address.is_site_local):
        return False
    return address.is_global or (private and address.is_private)


def _inside(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


class _Backend(httpcore.NetworkBackend):
    """Connects to checked addresses, until a time."""

    def __init__(self, poster: Poster, until: float, over: threading.Event) -> None:
        self._poster, self._until, self._over = poster, until, over

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failed: Exception | None = None
        for address in self._poster.addresses(host, port, host in LOOPBACK, self._over):
            try:
                sock = socket.create_connection((address, port), timeout=_left(self._until, httpcore.ConnectTimeout))
            except TimeoutError as error:
                raise httpcore.ConnectTimeout(str(error)) from None
            except OSError as error:
                failed = error
            else:
                return _Stream(sock, self._until, self._over)
        raise httpcore.ConnectError(str(failed or "it has no address"))


class _Stream(httpcore.NetworkStream):
    """A connection that ends at a time, or when nobody wants it any more."""

    def __init__(self, sock: socket.socket, until: float, over: threading.Event) -> None:
        self._sock, self._until, self._over = sock, until, over

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        received: bytes = self._tried(lambda: self._sock.recv(max_bytes), httpcore.ReadTimeout, httpcore.ReadError)
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        while buffer:
            sent = self._tried(lambda: self._sock.send(buffer), httpcore.WriteTimeout, httpcore.WriteError)  # noqa: B023
            buffer = buffer[sent:]

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            self._sock.settimeout(_left(self._until, httpcore.ConnectTimeout))
            secured = ssl_context.wrap_socket(self._sock, server_hostname=server_hostname)
        except TimeoutError as error:
            self.close()
            raise httpcore.ConnectTimeout(str(error)) from None
        except OSError as error:
            self.close()
            raise httpcore.ConnectError(str(error)) from None
        return _Stream(secured, self._until, self._over)

    def get_extra_info(self, info: str) -> Any:
        return self._sock if info == "socket" else None

    def _tried(self, call: Callable[[], Any], late: type[Exception], failed: type[Exception]) -> Any:
        """Again and again, a little each time, so that whoever leaves is not kept."""
        while True:
            if self._over.is_set():
                raise CalledOff
            self._sock.settimeout(min(LOOK_SECONDS, _left(self._until, late)))
            try:
                return call()
            except TimeoutError:
                continue
            except OSError as error:
                raise failed(str(error)) from None


def _left(until: float, late: type[Exception]) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise late("the time is up")
    return left


def _read(response: httpcore.Response) -> bytes:
    if response.status != 200:
        passing = response.status in (408, 425, 429) or response.status >= 500
        raise PostFailed(f"answered {response.status}", passing=passing)
    answer = b""
    for part in response.iter_stream():
        answer += part
        if len(answer) > ANSWER_BYTES:
            raise PostFailed(f"answered more than {ANSWER_BYTES >> 20} MiB", passing=False)
    return answer


def _url(target: Target) -> httpcore.URL:
    path = f"{target.path}?{target.query}" if target.query else target.path
    return httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=path)


def _host(target: Target) -> str:
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"


def look_up(host: str, port: int) -> list[str]:
    """Addresses of a host. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found))
