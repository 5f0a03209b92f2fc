import pytest

from openrl.domain.ids import RunId, SamplerId, TenantId
from openrl.domain.stretch import Doing, Owner, Period
from workers.device import timeline as module
from workers.device.timeline import Timeline

ONE, OTHER = Owner(TenantId("t"), SamplerId("one")), Owner(TenantId("t"), SamplerId("other"))
RUN = Owner(TenantId("t"), RunId("run"))
WALL = 1000.0  #: when the clock stands at 0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timeline(clock: Clock) -> Timeline:
    return Timeline(clock, lambda: WALL)


def did(timeline: Timeline, clock: Clock, doing: Doing, seconds: float, *of: Owner) -> None:
    began = timeline.now()
    clock.now += seconds
    timeline.note(doing, began, of)


def told(timeline: Timeline) -> Period:
    periods: list[Period] = []
    timeline.tell(periods.append)
    (period,) = periods
    return period


def seen(period: Period) -> list[tuple[Doing, float, float]]:
    return [(each.doing, each.began - WALL, each.ended - WALL) for each in period.stretches]


def test_decode_steps_for_the_same_samplers_are_one_stretch(timeline: Timeline, clock: Clock) -> None:
    for _ in range(3):
        did(timeline, clock, Doing.SAMPLE, 0.5, ONE)
    did(timeline, clock, Doing.SAMPLE, 0.5, ONE, OTHER)
    clock.now += 0.25
    did(timeline, clock, Doing.SAMPLE, 0.25, ONE, OTHER)
    period = told(timeline)
    assert seen(period) == [(Doing.SAMPLE, 0.0, 1.5), (Doing.SAMPLE, 1.5, 2.0), (Doing.SAMPLE, 2.25, 2.5)]
    assert [each.of for each in period.stretches] == [{ONE}, {ONE, OTHER}, {ONE, OTHER}]


def test_packs_are_told_one_by_one(timeline: Timeline, clock: Clock) -> None:
    did(timeline, clock, Doing.PACK, 0.5, RUN)
    did(timeline, clock, Doing.PACK, 0.5, RUN)
    assert seen(told(timeline)) == [(Doing.PACK, 0.0, 0.5), (Doing.PACK, 0.5, 1.0)]


def test_periods_follow_one_another_and_tell_everything_once(timeline: Timeline, clock: Clock) -> None:
    did(timeline, clock, Doing.PACK, 1.0, RUN)
    clock.now += 1.0
    first, nothing = told(timeline), told(timeline)
    assert (first.began, first.ended, len(first.stretches)) == (WALL, WALL + 2.0, 1)
    assert (nothing.began, nothing.ended, nothing.stretches) == (WALL + 2.0, WALL + 2.0, ())


def test_what_could_not_be_told_is_told_with_the_next(timeline: Timeline, clock: Clock) -> None:
    did(timeline, clock, Doing.PACK, 1.0, RUN)
    with pytest.raises(ZeroDivisionError):
        timeline.tell(lambda period: 1 // 0)
    did(timeline, clock, Doing.UPDATE, 1.0, RUN)
    period = told(timeline)
    assert seen(period) == [(Doing.PACK, 0.0, 1.0), (Doing.UPDATE, 1.0, 2.0)]
    assert period.began == WALL


def test_what_is_noted_while_it_is_told_comes_with_the_next(timeline: Timeline, clock: Clock) -> None:
    did(timeline, clock, Doing.PACK, 1.0, RUN)
    timeline.tell(lambda period: did(timeline, clock, Doing.UPDATE, 1.0, RUN))
    period = told(timeline)
    assert (period.began, seen(period)) == (WALL + 1.0, [(Doing.UPDATE, 1.0, 2.0)])


def test_too_many_stretches_are_counted(timeline: Timeline, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    for _ in range(5):
        did(timeline, clock, Doing.PACK, 1.0, RUN)
    period = told(timeline)
    assert (len(period.stretches), period.left_out) == (2, 3)
    assert told(timeline).left_out == 0


def test_stretches_stand_in_the_order_of_their_ends(timeline: Timeline, clock: Clock) -> None:
    did(timeline, clock, Doing.SAMPLE, 1.0, ONE)
    did(timeline, clock, Doing.PACK, 1.0, RUN)
    assert [each.doing for each in told(timeline).stretches] == [Doing.SAMPLE, Doing.PACK]
