import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from openrl.domain.errors import Draining
from openrl.domain.ids import RunId
from workers.train import room as room_module
from workers.train.room import Room
from workers.train.tiers import Budgets, Tier

A, B, C, D = (RunId(name) for name in "abcd")


class Mover:
    """Moves whatever it is asked to, unless it is stuck."""

    def __init__(self) -> None:
        self.moved: list[tuple[RunId, Tier]] = []
        self.stuck: set[RunId] = set()
        self.room: Room

    def __call__(self, run: RunId, to: Tier) -> int | None:
        if run in self.stuck:
            return None
        self.moved.append((run, to))
        if to is Tier.DEPOT:
            self.room.gone(run)
        return 10


def make(device: int, host: int | None = None) -> tuple[Room, Mover]:
    mover = Mover()
    mover.room = Room(Budgets(device=device, host=host), mover)
    return mover.room, mover


@pytest.fixture
def later() -> Callable[[Callable[[], None]], Future[None]]:
    pool = ThreadPoolExecutor()
    return pool.submit


def used(room: Room, run: RunId, size: int = 10) -> None:
    """An op of the run, from beginning to end."""
    room.take(run, size)
    room.rest(run, size)


def test_the_run_used_longest_ago_makes_room() -> None:
    room, mover = make(30)
    for run in (A, B, C, A, D):
        used(room, run)
    assert mover.moved == [(B, Tier.DEPOT)]
    assert room.used(Tier.DEVICE) == 30


def test_a_run_at_work_stays_and_others_wait_for_it(later: Callable[[Callable[[], None]], Future[None]]) -> None:
    room, mover = make(20)
    room.take(A, 10)
    room.take(B, 10)
    waiting = later(lambda: room.take(C, 10))
    with pytest.raises(TimeoutError):
        waiting.result(0.1)
    assert mover.moved == []
    room.rest(B, 10)
    waiting.result(5)
    assert mover.moved == [(B, Tier.DEPOT)]


def test_room_is_given_in_the_order_in_which_it_was_asked_for(
    later: Callable[[Callable[[], None]], Future[None]],
) -> None:
    room, _ = make(20)
    room.take(A, 10)
    room.take(B, 10)
    large = later(lambda: room.take(C, 20))
    while not room._line:
        pass
    small = later(lambda: room.take(D, 10))
    room.rest(B, 10)
    with pytest.raises(TimeoutError):
        small.result(0.1)
    room.rest(A, 10)
    large.result(5)
    room.rest(C, 20)
    small.result(5)


def test_a_run_larger_than_the_budget_gets_the_device_to_itself() -> None:
    room, mover = make(10)
    used(room, A)
    used(room, B, size=50)
    assert mover.moved == [(A, Tier.DEPOT)]


def test_who_has_room_and_needs_more_does_not_wait() -> None:
    room, _ = make(20)
    room.take(A, 10)
    room.take(B, 10)
    room.take(A, 20)
    assert room.used(Tier.DEVICE) == 30


def test_a_run_that_cannot_be_moved_goes_behind_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "PAUSE_SECONDS", 0)
    room, mover = make(20)
    used(room, A)
    used(room, B)
    mover.stuck.add(A)
    used(room, C)
    mover.stuck.clear()
    used(room, D)
    assert mover.moved == [(B, Tier.DEPOT), (A, Tier.DEPOT)]


def test_main_memory_is_filled_before_the_depot_and_left_by_runs_that_come_back() -> None:
    room, mover = make(10, host=20)
    for run in (A, B, C, D):
        used(room, run)
    assert mover.moved == [(A, Tier.HOST), (B, Tier.HOST), (A, Tier.DEPOT), (C, Tier.HOST)]
    used(room, C)
    assert mover.moved[4:] == [(B, Tier.DEPOT), (D, Tier.HOST)]
    assert (room.used(Tier.DEVICE), room.used(Tier.HOST)) == (10, 10)


def test_closing_sends_everybody_home(later: Callable[[Callable[[], None]], Future[None]]) -> None:
    room, _ = make(10)
    room.take(A, 10)
    waiting = later(lambda: room.take(B, 10))
    room.close()
    with pytest.raises(Draining):
        waiting.result(5)
    with pytest.raises(Draining):
        room.take(C, 10)
    room.rest(A, 10)


def test_many_threads_never_hold_more_than_the_budget_and_all_get_their_turn() -> None:
    room, _ = make(50)
    lock, held, most = threading.Lock(), [0], [0]

    def work(run: RunId, size: int) -> None:
        for _ in range(20):
            room.take(run, size)
            with lock:
                held[0] += size
                most[0] = max(most[0], held[0])
            with lock:
                held[0] -= size
            room.rest(run, size)

    with ThreadPoolExecutor(12) as pool:
        done = [pool.submit(work, RunId(f"run{at}"), 5 + at) for at in range(12)]
    for each in done:
        each.result()
    assert 0 < most[0] <= 50
    assert room.used(Tier.DEVICE) <= 50
