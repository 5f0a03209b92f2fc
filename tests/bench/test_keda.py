import pytest
from keda import Rules, Scaler

RULES = Rules(target=4, most=20)


def run(scaler: Scaler, since: float, until: float, metric: float | None) -> list[int]:
    """What it wants second by second."""
    return [scaler.tick(float(now), metric) for now in range(int(since), int(until))]


def test_nothing_waiting_needs_nobody() -> None:
    assert set(run(Scaler(RULES), 0, 1000, 0)) == {0}


def test_the_first_op_wakes_one_worker_and_many_ops_wake_many() -> None:
    assert run(Scaler(RULES), 0, 31, 1)[-1] == 1
    wanted = run(Scaler(RULES), 0, 61, 40)
    assert wanted[0] in (1, 5) and wanted[-1] == 10


def test_it_goes_up_by_four_or_a_doubling_at_a_time_and_no_further_than_allowed() -> None:
    wanted = run(Scaler(RULES), 0, 120, 1000)
    steps = list(dict.fromkeys(wanted))
    assert steps == [5, 10, 20]


def test_about_enough_is_enough() -> None:
    scaler = Scaler(RULES, replicas=10)
    assert set(run(scaler, 0, 900, 43)) == {10}


def test_it_goes_down_to_the_most_of_the_last_minutes_and_to_nobody_once_nothing_waited_for_as_long() -> None:
    scaler = Scaler(RULES)
    run(scaler, 0, 100, 40)
    quiet = run(scaler, 100, 700, 0)
    assert set(quiet[:250]) == {10} and quiet[-1] == 0
    assert quiet[0] == 10 and sorted(quiet, reverse=True) == quiet


def test_a_pause_between_two_bursts_sends_nobody_away() -> None:
    scaler = Scaler(RULES)
    run(scaler, 0, 100, 40)
    assert set(run(scaler, 100, 250, 0)) == {10} == set(run(scaler, 250, 300, 40))


def test_a_metric_that_cannot_be_read_changes_nothing() -> None:
    scaler = Scaler(RULES, replicas=3)
    assert set(run(scaler, 0, 1000, None)) == {3}


@pytest.mark.parametrize("times", [1.0, 15.0])
def test_faster_divides_all_times(times: float) -> None:
    faster = RULES.faster(times)
    assert (faster.polling_seconds, faster.cooldown_seconds) == (30 / times, 300 / times)
    assert (faster.sync_seconds, faster.stabilization_seconds, faster.target) == (15 / times, 300 / times, 4)
