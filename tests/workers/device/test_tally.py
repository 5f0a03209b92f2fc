import pytest

from openrl.domain.worker import DeviceUse, SideUse
from workers.device.arbiter import Side
from workers.device.tally import Tally


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_seconds_passes_and_tokens_are_counted_by_side(clock: Clock) -> None:
    tally = Tally(clock)
    for side, seconds, tokens in ((Side.TRAIN, 2.0, 50), (Side.SAMPLE, 0.5, 3), (Side.SAMPLE, 0.5, 2)):
        with tally.timing(side) as timed:
            clock.now += seconds
            tally.count(side, tokens)
        assert timed.seconds == seconds
    clock.now += 1.0
    use = tally.read()
    assert use == DeviceUse(
        seconds=4.0,
        busy_seconds=3.0,
        train=SideUse(seconds=2.0, passes=1, tokens=50),
        sample=SideUse(seconds=1.0, passes=2, tokens=5),
    )
    assert use.busy == 0.75


def test_what_runs_at_the_moment_is_counted_too_and_only_once(clock: Clock) -> None:
    tally = Tally(clock)
    with tally.timing(Side.TRAIN):
        clock.now += 3.0
        assert tally.read().train.seconds == 3.0
        clock.now += 1.0
    assert tally.read().train.seconds == 4.0
    assert tally.read().sample.seconds == 0.0


def test_time_in_which_both_sides_run_is_busy_once(clock: Clock) -> None:
    tally = Tally(clock)
    with tally.timing(Side.TRAIN):
        clock.now += 1.0
        with tally.timing(Side.SAMPLE):
            clock.now += 2.0
            assert tally.read().busy_seconds == 3.0
        clock.now += 1.0
    clock.now += 4.0
    use = tally.read()
    assert (use.train.seconds, use.sample.seconds, use.busy_seconds, use.busy) == (4.0, 2.0, 4.0, 0.5)


def test_a_turn_that_fails_was_busy_all_the_same(clock: Clock) -> None:
    tally = Tally(clock)
    with pytest.raises(ZeroDivisionError), tally.timing(Side.SAMPLE):
        clock.now += 2.0
        raise ZeroDivisionError
    assert tally.read().sample.seconds == 2.0


def test_nothing_has_a_share_of_no_time(clock: Clock) -> None:
    assert Tally(clock).read().busy == 0.0
