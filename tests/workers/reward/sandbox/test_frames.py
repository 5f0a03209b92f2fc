import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from workers.reward.sandbox import frames


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def test_a_message_arrives_as_it_was_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    message = {"text": "ü\ud800", "numbers": [1, 2.5, None]}
    frames.send(one, message)
    assert frames.receive(other, 1000) == message


def test_a_long_message_is_not_read(pair: tuple[socket.socket, socket.socket]) -> None:
    frames.send(pair[0], {"text": "x" * 100})
    with pytest.raises(frames.Flooded):
        frames.receive(pair[1], 50)


@pytest.mark.parametrize("data", [b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_no_message(pair: tuple[socket.socket, socket.socket], data: bytes) -> None:
    pair[0].sendall(struct.pack("!I", len(data)) + data)
    with pytest.raises(frames.Garbled):
        frames.receive(pair[1], 1_000_000)


def test_silence_ends_in_time_also_in_the_middle_of_a_message(pair: tuple[socket.socket, socket.socket]) -> None:
    for data in (b"", struct.pack("!I", 9) + b"{}"):
        pair[0].sendall(data)
        with pytest.raises(frames.Overdue):
            frames.receive(pair[1], 1000, time.monotonic() + 0.05)


def test_nobody_reads_for_ever_and_nobody_writes_for_ever(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(frames.Overdue):
        frames.send(pair[0], {"text": "x" * (1 << 24)}, time.monotonic() + 0.05)


def test_the_others_end_is_told(pair: tuple[socket.socket, socket.socket]) -> None:
    assert not frames.has_word(pair[0])
    pair[1].close()
    assert frames.has_word(pair[0])
    with pytest.raises(frames.Ended):
        frames.receive(pair[0], 1000)
    with pytest.raises(frames.Ended):
        frames.send(pair[0], {})


def test_a_watcher_looks_while_nothing_comes(pair: tuple[socket.socket, socket.socket]) -> None:
    looks: list[int] = []

    class Enough(Exception):
        pass

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            raise Enough

    with pytest.raises(Enough):
        frames.receive(pair[1], 1000, time.monotonic() + 10, look)
    with pytest.raises(frames.Overdue):
        frames.receive(pair[1], 1000, time.monotonic() + 0.02, lambda: None)
    threading.Timer(0.15, lambda: frames.send(pair[0], {"late": 1})).start()
    assert frames.receive(pair[1], 1000, time.monotonic() + 10, lambda: None) == {"late": 1}
