"""Posts go to addresses that are allowed, within their time, and answer bounded bytes."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from endpoint import TLS, Endpoint, endpoint, posting

from openrl.domain.webhook import target_of
from workers.reward.posting import ANSWER_BYTES, CalledOff, Poster, PostFailed, allowed, look_up


@pytest.fixture
def up() -> Iterator[Endpoint]:
    with endpoint() as up:
        yield up


def post(up: Endpoint, *, seconds: float = 5.0, over: threading.Event | None = None) -> bytes:
    return posting(seconds).post(
        target_of(f"{up.url}?key=1"), {"x-a": "b"}, b'{"texts": []}', over or threading.Event()
    )


def test_a_body_is_posted_with_its_headers(up: Endpoint) -> None:
    up.answer = lambda body: {"got": body}
    assert post(up) == b'{"got": {"texts": []}}'
    ((headers, body),) = up.seen
    told = {name.lower(): value for name, value in headers.items()}
    assert body == b'{"texts": []}' and told["x-a"] == "b" and told["content-type"] == "application/json"
    assert told["host"] == f"127.0.0.1:{up.port}"


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_no_proxy_is_asked(up: Endpoint, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv(proxy, "http://127.0.0.1:1")
    assert post(up)


@pytest.mark.parametrize(
    ("status", "passing"),
    [
        (301, False),
        (302, False),
        (307, False),
        (204, False),
        (400, False),
        (404, False),
        (429, True),
        (500, True),
        (503, True),
    ],
)
def test_only_a_200_is_an_answer_and_no_redirect_is_followed(up: Endpoint, status: int, passing: bool) -> None:
    up.answer = lambda _: status
    with pytest.raises(PostFailed, match=f"answered {status}") as caught:
        post(up)
    assert caught.value.passing is passing and len(up.seen) == 1


def test_an_answer_is_bounded(up: Endpoint) -> None:
    up.answer = lambda _: b"a" * (ANSWER_BYTES + 1)
    with pytest.raises(PostFailed, match="more than 4 MiB"):
        post(up)


def drip(handler: Any) -> None:
    """A byte now and then, so that no single read takes long."""
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 1000:
        handler.wfile.write(bytes([byte]))
        time.sleep(0.01)


@pytest.mark.parametrize("answer", [drip, lambda handler: time.sleep(3)])
def test_time_is_bounded_in_all(up: Endpoint, answer: Any) -> None:
    up.answer = lambda _: answer
    began = time.monotonic()
    with pytest.raises(PostFailed, match=r"did not answer within 0\.3 s") as caught:
        post(up, seconds=0.3)
    assert caught.value.passing and time.monotonic() - began < 2


def test_whoever_leaves_is_not_kept(up: Endpoint) -> None:
    up.answer = lambda _: lambda handler: time.sleep(5)
    over = threading.Event()
    threading.Timer(0.1, over.set).start()
    began = time.monotonic()
    with pytest.raises(CalledOff):
        post(up, seconds=30.0, over=over)
    assert time.monotonic() - began < 3


def test_a_server_that_is_not_there_or_breaks_off_may_be_tried_again(up: Endpoint) -> None:
    up.answer = lambda _: lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(PostFailed, match="did not answer: ") as caught:
        post(up)
    assert caught.value.passing
    up.port = 1
    with pytest.raises(PostFailed, match=r"did not answer: .*refused") as caught:
        post(up)
    assert caught.value.passing


@pytest.mark.parametrize(
    ("address", "public", "private"),
    [
        ("93.184.216.34", True, True),
        ("2606:2800:220:1::1", True, True),
        ("10.0.0.1", False, True),
        ("192.168.1.1", False, True),
        ("fd00::1", False, True),
        ("127.0.0.1", False, False),
        ("127.8.8.8", False, False),
        ("::1", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("169.254.169.254", False, False),
        ("168.63.129.16", False, False),
        ("192.0.0.192", False, False),
        ("fd00:ec2::254", False, False),
        ("fe80::1", False, False),
        ("fec0::1", False, False),
        ("::a00:1", False, False),
        ("224.0.0.1", False, False),
        ("255.255.255.255", False, False),
        ("::ffff:127.0.0.1", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("::ffff:10.0.0.1", False, True),
        ("64:ff9b::7f00:1", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("2002:7f00:1::", False, False),
    ],
)
def test_addresses_of_hosts_are_checked(address: str, public: bool, private: bool) -> None:
    ip = ip_address(address)
    assert allowed(ip, loopback=False, private=False) is public
    assert allowed(ip, loopback=False, private=True) is private


@pytest.mark.parametrize(
    ("address", "may"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("8.8.8.8", False)]
)
def test_a_url_of_this_machine_goes_nowhere_else(address: str, may: bool) -> None:
    assert allowed(ip_address(address), loopback=True, private=True) is may


def scripted(addresses: list[str]) -> Poster:
    return Poster(seconds=2.0, tls=TLS, look_up=lambda host, port: addresses)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["169.254.169.254"], ["93.184.216.34", "10.0.0.1"]])
def test_a_name_that_means_a_place_inside_is_not_connected_to(up: Endpoint, addresses: list[str]) -> None:
    with pytest.raises(PostFailed, match="has an address that may not be posted to") as caught:
        scripted(addresses).post(target_of(f"https://a.example.com:{up.port}/"), {}, b"{}", threading.Event())
    assert not caught.value.passing and up.seen == []


def test_this_machines_name_must_mean_this_machine() -> None:
    with pytest.raises(PostFailed, match="may not be posted to"):
        scripted(["93.184.216.34"]).post(target_of("http://localhost:1/"), {}, b"{}", threading.Event())


def test_a_name_that_nobody_knows_may_be_tried_again() -> None:
    def fail(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    asking = Poster(seconds=2.0, tls=TLS, look_up=fail)
    with pytest.raises(PostFailed, match="cannot be found: Name or service not known") as caught:
        asking.post(target_of("https://a.example.com/"), {}, b"{}", threading.Event())
    assert caught.value.passing
    assert look_up("127.0.0.1", 1) == ["127.0.0.1"]


def test_looking_a_name_up_has_a_time_of_its_own_and_is_called_off() -> None:
    waiting, gone, over = threading.Event(), threading.Event(), threading.Event()

    def slow(host: str, port: int) -> list[str]:
        waiting.set()
        gone.wait(20)
        return ["127.0.0.1"]

    asking = Poster(seconds=30.0, tls=TLS, look_up=slow, look_up_seconds=0.1)
    with pytest.raises(PostFailed, match=r"cannot be found: its name was not told within 0\.1 s") as caught:
        asking.post(target_of("https://a.example.com/"), {}, b"{}", over)
    assert caught.value.passing
    threading.Thread(target=lambda: waiting.wait(20) and over.set(), daemon=True).start()
    waiting.clear()
    began = time.monotonic()
    with pytest.raises(CalledOff):
        Poster(seconds=30.0, tls=TLS, look_up=slow).post(target_of("https://a.example.com/"), {}, b"{}", over)
    assert time.monotonic() - began < 4
    gone.set()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = tmp_path / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=a.example.com", "-addext", "subjectAltName=DNS:a.example.com"]
    subprocess.run([*command, *names, "-keyout", made, "-out", tmp_path / "c"], check=True, capture_output=True)
    made.write_bytes(made.read_bytes() + (tmp_path / "c").read_bytes())
    return made


def test_a_server_must_prove_its_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is this machine's here, which is let through for the test alone."""
    monkeypatch.setattr("workers.reward.posting.allowed", lambda *_, **__: True)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)

    def send(tls: ssl.SSLContext, host: str) -> bytes:
        asking = Poster(seconds=5.0, tls=tls, look_up=lambda host, port: ["127.0.0.1"])
        return asking.post(target_of(f"https://{host}:{up.port}/"), {}, b'{"texts": []}', threading.Event())

    with endpoint(theirs) as up:
        assert send(trusting, "a.example.com") == b'{"scores": []}'
        for tls, host in ((trusting, "b.example.com"), (ssl.create_default_context(), "a.example.com")):
            with pytest.raises(PostFailed, match="certificate verify failed"):
                send(tls, host)
        assert len(up.seen) == 1
