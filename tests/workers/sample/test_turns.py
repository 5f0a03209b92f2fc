"""Tenants take turns; one at a time, and nobody is left waiting."""

import threading
from collections.abc import Callable

import pytest

from workers.sample.turns import Turns


class Queue:
    """Threads that ask for a turn one after the other, while the first one has it."""

    def __init__(self) -> None:
        self.turns, self.had = Turns(), []  # type: tuple[Turns, list[str]]
        self._threads: list[threading.Thread] = []

    def ask(self, tenant: str, name: str, use: Callable[[], None] = lambda: None) -> None:
        def mine() -> None:
            with self.turns.mine(tenant):
                self.had.append(name)
                use()

        before = sum(map(len, self.turns._waiting.values()))
        self._threads.append(threading.Thread(target=mine, daemon=True))
        self._threads[-1].start()
        while name not in self.had and sum(map(len, self.turns._waiting.values())) == before:
            pass

    def over(self) -> None:
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


def test_a_tenants_many_let_another_ones_past() -> None:
    queue, hold = Queue(), threading.Event()
    queue.ask("anna", "a0", lambda: bool(hold.wait(10)))
    for name in ("a1", "a2", "a3"):
        queue.ask("anna", name)
    queue.ask("bert", "b0")
    queue.ask("bert", "b1")
    queue.ask("carl", "c0")
    hold.set()
    queue.over()
    assert queue.had == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]
    queue.ask("anna", "later")
    queue.over()


def test_an_error_passes_the_turn_on() -> None:
    turns = Turns()
    with pytest.raises(KeyError), turns.mine("anna"):
        raise KeyError
    with turns.mine("anna"):
        assert turns._taken
    assert not turns._taken
