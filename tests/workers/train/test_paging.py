import logging
import threading
from dataclasses import dataclass

import pytest

from openrl.domain.errors import Draining
from openrl.domain.ids import RunId
from workers.train.paging import Paging
from workers.train.residents import Residents
from workers.train.tiers import Budgets

A, B, C = (RunId(name) for name in "abc")


@dataclass
class State:
    size_bytes: int = 10
    most_bytes: int = 10


class Engine:
    """Runs by id, and where each was sent."""

    def __init__(self) -> None:
        self.runs: dict[str, State] = {}
        self.host: set[str] = set()

    def is_paged(self, run_id: str, /) -> bool:
        return run_id in self.runs

    def run(self, run_id: str, /) -> State:
        return self.runs[run_id]

    def put(self, run_id: str, state: State, /) -> None:
        self.runs[run_id] = state

    def drop(self, run_id: str, /) -> None:
        self.runs.pop(run_id, None)

    def to_device(self, run_id: str, /) -> None:
        self.host.discard(run_id)

    def to_host(self, run_id: str, /) -> int:
        self.host.add(run_id)
        return 10


class World:
    """Paging over an engine, with a depot that may fail."""

    def __init__(self, device: int, host: int | None = None) -> None:
        self.engine, self.residents = Engine(), Residents()
        self.depot: list[RunId] = []
        self.is_broken = False
        self.paging: Paging[State] = Paging(self.engine, self.residents, Budgets(device=device, host=host), self.out)

    def out(self, run: RunId) -> bool:
        if self.is_broken:
            raise OSError("the depot does not answer")
        self.depot.append(run)
        self.paging.forget(run)
        return True

    def used(self, run: RunId) -> None:
        """An op of the run, which comes from wherever it is."""
        with self.residents.lock(run), self.paging.at_work(run):
            if not self.engine.is_paged(run):
                self.paging.enter(run, State())


def test_the_run_used_longest_ago_goes_to_the_depot() -> None:
    world = World(device=20)
    for run in (A, B, A, C):
        world.used(run)
    assert world.depot == [B]
    assert set(world.engine.runs) == {A, C}


def test_a_run_in_main_memory_comes_back_with_its_op_and_another_goes() -> None:
    world = World(device=10, host=20)
    for run in (A, B):
        world.used(run)
    assert world.engine.host == {A}
    world.used(A)
    assert world.engine.host == {B} and not world.depot


def test_a_run_whose_lock_another_thread_has_stays() -> None:
    world = World(device=20)
    world.used(A)
    world.used(B)
    locked, done = threading.Event(), threading.Event()

    def at_work() -> None:
        with world.residents.lock(A):
            locked.set()
            done.wait(5)

    thread = threading.Thread(target=at_work)
    thread.start()
    locked.wait(5)
    world.used(C)
    done.set()
    thread.join(5)
    assert world.depot == [B]


def test_a_run_that_the_depot_does_not_take_stays_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    world = World(device=10)
    world.used(A)
    world.is_broken = True
    waiting = threading.Thread(target=world.used, args=(B,))
    waiting.start()
    while "stays in memory" not in caplog.text:
        waiting.join(0.001)
    assert A in world.engine.runs
    world.is_broken = False
    waiting.join(5)
    assert world.depot == [A] and set(world.engine.runs) == {B}


def test_a_run_that_is_forgotten_leaves_its_room() -> None:
    world = World(device=10)
    world.used(A)
    world.paging.forget(A)
    world.used(B)
    assert not world.depot


def test_what_came_and_went_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(device=10)
    world.used(A)
    world.paging.came()
    world.used(B)
    world.paging.tell()
    assert [record.getMessage() for record in caplog.records] == [
        "1 runs from the depot, 1 to it; 0 in memory, 0 MB on the device"
    ]
    world.paging.tell()
    assert len(caplog.records) == 1


def test_a_draining_worker_lets_nobody_in() -> None:
    world = World(device=10)
    world.paging.drain()
    with pytest.raises(Draining):
        world.used(A)
    assert not world.engine.runs
