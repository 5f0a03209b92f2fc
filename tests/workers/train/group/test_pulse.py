"""Both ends in one process: what one notices of the other."""

import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from workers.train.group import pulse as pulses
from workers.train.group.pulse import Pulse

HOST = "localhost"
SECONDS = 5.0  #: more than anything here takes


@dataclass
class Ends:
    first: Pulse
    other: Pulse
    missed: "queue.Queue[str]"  #: by the first
    lost: "queue.Queue[str]"  #: by the other


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(pulses, "BEAT_SECONDS", 0.05)
    missed: queue.Queue[str] = queue.Queue()
    lost: queue.Queue[str] = queue.Queue()
    first, other = Pulse(missed.put, 0.5), Pulse(lost.put, 0.5)
    where = first.listen()
    accepting = threading.Thread(target=first.accept, args=(1, SECONDS))
    accepting.start()
    with socket.create_connection((HOST, int.from_bytes(where[:2], "big"))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        other.connect(HOST, where, SECONDS)
        accepting.join(SECONDS)
    assert not accepting.is_alive(), "the stranger was not taken for a rank"
    yield Ends(first, other, missed, lost)
    first.close()
    other.close()


def test_a_connection_that_closes_is_missed_at_once(ends: Ends) -> None:
    ends.other._connections[0].shutdown(socket.SHUT_RDWR)  # as the system does for a process that was killed
    assert "gone" in ends.missed.get(timeout=SECONDS)


def test_silence_is_missed_after_a_while(ends: Ends) -> None:
    ends.other.end()  # it neither speaks nor closes
    assert "silent for" in ends.missed.get(timeout=SECONDS)


def test_who_beats_is_not_missed(ends: Ends) -> None:
    time.sleep(1.0)
    assert ends.missed.empty() and ends.lost.empty()


def test_nobody_is_missed_once_the_end_was_announced(ends: Ends) -> None:
    ends.first.end()
    ends.other.end()
    ends.other.close()
    with pytest.raises(queue.Empty):
        ends.missed.get(timeout=0.3)


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever() -> None:
    first = Pulse(lambda what: None, 1.0)
    first.listen()
    with pytest.raises(TimeoutError):
        first.accept(1, 0.05)
    first.close()
