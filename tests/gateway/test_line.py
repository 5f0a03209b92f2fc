import pytest

from openrl.config import Gateway
from openrl.gateway.doubles import toy_gateway
from openrl.gateway.line import in_line
from openrl.ledger.port import UNSERVED_SLOTS, Place


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (None, None),
        (Place(ahead=0, seconds=None), "waiting in line, the next of your requests"),
        (Place(ahead=1, seconds=0.2), "waiting in line, behind 1 of your requests, for about 1 s"),
        (Place(ahead=40, seconds=119.2), "waiting in line, behind up to 40 of your requests, for about 120 s"),
        (Place(ahead=9000, seconds=601.0), "waiting in line, behind up to 9000 of your requests, for about 11 min"),
    ],
)
def test_a_place_in_words(place, said):
    assert in_line(place) == said


@pytest.fixture
def gateway(tmp_path):
    """Its worker hears nothing."""
    with toy_gateway(tmp_path, gateway=Gateway(poll_seconds=0.1)) as up:
        up.worker.hears = lambda bell: False
        yield up


def test_a_poll_of_a_sample_in_line_says_how_long_the_line_is(http):
    sampler, rung = http.sampler(), UNSERVED_SLOTS // 2
    ids = [http.sample(sampler, number).json()["request_id"] for number in range(rung + 3)]
    assert http.call("retrieve_future", request_id=ids[0]).json() == {"queue_state": "active"}
    answer = http.call("retrieve_future", request_id=ids[-1])
    reason = "waiting in line, behind up to 2 of your requests"
    assert (answer.status_code, answer.json()) == (
        408,
        {"queue_state": "paused_capacity", "queue_state_reason": reason},
    )
