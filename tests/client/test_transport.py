import pytest

from openrl.client import RequestRefused, ServiceUnreachable
from openrl.client import transport as module
from openrl.client.transport import PAUSES, Tries


@pytest.fixture
def clock(monkeypatch):
    hands = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: hands[0])
    return hands


def test_pauses_grow_until_patience_is_at_an_end(clock):
    tries = Tries("http://here", 10.0)
    pauses = []
    with pytest.raises(ServiceUnreachable, match=r"http://here did not answer for 10 s \(last: lost\)"):
        while True:
            pauses.append(tries.failed("lost"))
            clock[0] += pauses[-1]
    assert pauses == list(PAUSES[: len(pauses)]) and 3.0 < sum(pauses) <= 10.0


def test_a_caller_that_takes_its_time_between_two_reads_loses_no_patience(clock):
    tries = Tries("http://here", 10.0)
    clock[0] += 3600
    assert tries.failed("lost") == PAUSES[0]
    tries.begin()
    clock[0] += 3600
    assert tries.failed("lost") == PAUSES[0]


def test_what_trying_again_does_not_help_is_refused_at_once_or_when_it_did_not(clock):
    tries = Tries("http://here", 10.0)
    with pytest.raises(RequestRefused, match="no such batch"):
        tries.failed("no such batch", 404)
    assert tries.failed("busy", 429) == PAUSES[0] and tries.failed("starting", 503) == PAUSES[1]
    clock[0] += 60
    with pytest.raises(RequestRefused, match="busy"):
        tries.failed("busy", 429)
    with pytest.raises(ServiceUnreachable, match="starting"):
        tries.failed("starting", 503)
