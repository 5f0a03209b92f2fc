import pytest

from openrl.domain.ids import RunId, SamplerId, TenantId, WorkerId
from openrl.domain.stretch import Doing, Owner, Period, Stretch
from openrl.ledger.timelines import KEPT, KEPT_SECONDS, MemoryTimelines, RedisTimelines, decoded, encoded

ONE, TWO = WorkerId("w1"), WorkerId("w2")
A = Owner(TenantId("a"), RunId("s:train:0"))
B = Owner(TenantId("b"), SamplerId("s:sample:0"))
PERIOD = Period(
    began=1_790_000_000.0,
    ended=1_790_000_002.0,
    stretches=(
        Stretch(doing=Doing.PACK, began=1_789_999_999.5, ended=1_790_000_000.25, of=frozenset({A})),
        Stretch(doing=Doing.SAMPLE, began=1_790_000_000.25, ended=1_790_000_001.0, of=frozenset({A, B})),
        Stretch(doing=Doing.CALL, began=1_790_000_001.0, ended=1_790_000_001.5),
    ),
    left_out=2,
)


@pytest.fixture(params=["memory", "redis"])
def timelines(request):
    return MemoryTimelines() if request.param == "memory" else RedisTimelines(request.getfixturevalue("client"))


def test_periods_come_back_as_they_were_told_each_with_its_worker(timelines):
    nothing = Period(began=PERIOD.ended, ended=PERIOD.ended + 2)
    timelines.add(ONE, PERIOD)
    timelines.add(ONE, nothing)
    timelines.add(TWO, nothing)
    assert timelines.of(ONE) == [PERIOD, nothing]
    assert timelines.of(TWO) == [nothing]
    assert timelines.of(WorkerId("other")) == []


def test_the_oldest_periods_go(timelines):
    for second in range(KEPT + 3):
        timelines.add(ONE, Period(began=second, ended=second + 1))
    assert [period.began for period in timelines.of(ONE)] == list(range(3, KEPT + 3))


def test_what_a_worker_told_goes_after_it(client):
    RedisTimelines(client).add(ONE, PERIOD)
    assert 0 < client.ttl("openrl:timeline:w1") <= KEPT_SECONDS


def test_an_owner_is_written_once():
    many = Period(began=0.0, ended=2.0, stretches=PERIOD.stretches[:1] * 100)
    assert encoded(many).count(b"s:train:0") == 1
    assert decoded(encoded(PERIOD)) == PERIOD


def test_what_only_a_newer_worker_knows_is_counted_as_left_out():
    told = encoded(PERIOD).replace(PERIOD.stretches[0].doing.encode(), b"dream")
    kept = [each for each in PERIOD.stretches if each.doing is not PERIOD.stretches[0].doing]
    found = decoded(told)
    assert list(found.stretches) == kept
    assert found.left_out == PERIOD.left_out + len(PERIOD.stretches) - len(kept)
