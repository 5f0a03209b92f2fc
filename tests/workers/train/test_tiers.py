import pytest

from openrl.domain.ids import RunId
from workers.train.tiers import Budgets, Seen, Tier, moves


def seen(*sizes: int, busy: str = "", prefix: str = "run") -> list[Seen]:
    """Runs of these sizes, the one used longest ago first."""
    names = [f"{prefix}{at}" for at in range(len(sizes))]
    return [Seen(run=RunId(name), size=size, busy=name in busy) for name, size in zip(names, sizes, strict=True)]


def told(device: list[Seen], host: list[Seen], excess: int, host_left: int | None) -> list[tuple[str, str]]:
    return [(move.run, move.to) for move in moves(device, host, excess=excess, host_left=host_left)]


def test_nothing_moves_while_all_fit() -> None:
    assert told(seen(5, 5), [], 0, None) == []
    assert told(seen(5, 5), seen(5), -3, 0) == []


def test_the_least_recently_used_go_until_there_is_room() -> None:
    assert told(seen(5, 5, 5), [], 6, None) == [("run0", "depot"), ("run1", "depot")]


def test_a_run_at_work_is_passed_over() -> None:
    assert told(seen(5, 5, 5), [], 5, None) == [("run0", "depot")]
    assert told(seen(5, 5, 5, busy="run0"), [], 5, None) == [("run1", "depot")]
    assert told(seen(5, busy="run0"), [], 5, None) == []


def test_main_memory_comes_before_the_depot_where_it_is_a_tier_of_its_own() -> None:
    assert told(seen(5, 5, 5), [], 6, 100) == [("run0", "host"), ("run1", "host")]


def test_main_memory_makes_room_first() -> None:
    moved = told(seen(5, 5), seen(4, 4, prefix="old"), 5, 0)
    assert moved == [("old0", "depot"), ("old1", "depot"), ("run0", "host")]


def test_a_busy_run_in_main_memory_stays_there() -> None:
    assert told(seen(5), seen(5, 5, prefix="old", busy="old0"), 5, 0) == [("old1", "depot"), ("run0", "host")]


def test_where_main_memory_cannot_take_all_those_used_last_get_it() -> None:
    assert told(seen(5, 5, 5), [], 15, 11) == [("run0", "depot"), ("run1", "host"), ("run2", "host")]


@pytest.mark.parametrize(("device_mb", "host_mb", "device", "host"), [(0, 0, 250, 500), (3, 4.5, 3_000_000, 4_500_000)])
def test_budgets_are_what_is_set_or_a_share_of_what_is_free(
    device_mb: float, host_mb: float, device: int, host: int
) -> None:
    budgets = Budgets.of(device_mb=device_mb, host_mb=host_mb, free_device=1000, free_host=1000, apart=True)
    assert budgets == Budgets(device=device, host=host)


def test_a_device_that_computes_in_main_memory_has_no_tier_between_it_and_the_depot() -> None:
    budgets = Budgets.of(device_mb=1, host_mb=1, free_device=0, free_host=0, apart=False)
    assert budgets == Budgets(device=1_000_000, host=None)
    assert [move.to for move in moves(seen(1), [], excess=1, host_left=budgets.host)] == [Tier.DEPOT]
