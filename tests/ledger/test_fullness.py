"""A broker whose memory is nearly full, and one that is."""

import pytest
import redis

from openrl.domain.errors import LedgerFull, PassingError
from openrl.domain.op import Status
from openrl.domain.outcome import StepResult
from openrl.ledger.fullness import Fullness


class Told:
    """A client that tells of its server's memory."""

    def __init__(self, **memory: int) -> None:
        self.memory, self.asked = memory, 0

    def info(self, section: str) -> dict[str, int]:
        assert section == "memory"
        self.asked += 1
        return self.memory


def test_it_is_asked_once_a_second():
    now, client = [10.0], Told(used_memory=45, maxmemory=50)
    fullness = Fullness(client, lambda: now[0])
    assert [fullness.share() for _ in range(3)] == [0.9] * 3
    assert client.asked == 1
    now[0], client.memory["used_memory"] = 11.0, 10
    assert fullness.share() == 0.2
    assert client.asked == 2


@pytest.mark.parametrize(("used", "full"), [(44, False), (45, True), (60, True)])
def test_from_nine_tenths_on_new_work_is_refused_as_something_that_passes(used, full):
    fullness = Fullness(Told(used_memory=used, maxmemory=50))
    if not full:
        fullness.check()
        return
    with pytest.raises(LedgerFull, match=f"{2 * used}% of the broker's memory") as refused:
        fullness.check()
    assert isinstance(refused.value, PassingError)


def test_memory_without_a_bound_is_never_full():
    fullness = Fullness(Told(used_memory=10**12, maxmemory=0))
    assert fullness.share() is None
    fullness.check()


def test_a_broker_that_keeps_it_to_itself_is_taken_at_its_word():
    class Silent:
        def info(self, section: str) -> None:
            raise redis.exceptions.NoPermissionError("this user has no permissions to run the 'info' command")

    assert Fullness(Silent()).share() is None


@pytest.mark.live
def test_what_a_nearly_full_broker_has_goes_on_and_nothing_new_comes(own_server, new_scene):
    client = own_server.client()
    scene = new_scene().on_redis(client)
    waiting = scene.turn(0)
    client.set("filling", bytes(20_000_000))
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.95))
    fresh = new_scene().on_redis(client)  # which has not asked yet
    for add in (lambda: fresh.turn(0, run="other"), lambda: fresh.reward(), lambda: fresh.sample()):
        with pytest.raises(LedgerFull):
            add()
    held = fresh.ledger.claim(waiting)
    fresh.ledger.done(held, StepResult(metrics={}))
    assert fresh.ledger.read(waiting).status is Status.DONE
    client.close()


@pytest.mark.live
def test_a_full_broker_says_so_and_forgets_nothing(own_server, new_scene):
    client = own_server.client()
    scene = new_scene().on_redis(client)
    waiting = scene.turn(0)
    client.config_set("maxmemory", 1)
    with pytest.raises(LedgerFull):
        scene.ledger.claim(waiting)
    client.config_set("maxmemory", 0)
    assert scene.ledger.claim(waiting) is not None
    client.close()
