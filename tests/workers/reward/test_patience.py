"""Whose time it is that passes: the child's, or that of a busy machine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openrl.domain.errors import GraderFailed
from workers.reward import grading, patience
from workers.reward.execution import Ending
from workers.reward.patience import MOST_TIMES, Over, Patience
from workers.reward.sandbox import frames
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.spent import Spent


class Scripted:
    """A child that runs, and that is known to stand ready, for these shares of every second, and sleeps otherwise
    unless it is `ready`; `None` where nobody knows."""

    folder = Path("/nowhere")

    def __init__(
        self, clock: Callable[[], float], shares: tuple[float, float] | None, *, ready: bool | None = None
    ) -> None:
        self._clock, self._shares = clock, shares
        self._ready = sum(shares or ()) > 0.9 if ready is None else ready

    def spent(self) -> Spent | None:
        if self._shares is None:
            return None
        ran, stood = (share * self._clock() for share in self._shares)
        return Spent(ran, stood, self._ready)


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Turns the clock on; without seconds it tells the time."""
    now = [1000.0]

    def pass_time(seconds: float = 0.0) -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr(patience.time, "monotonic", pass_time)
    return pass_time


def over(
    pass_time: Any, shares: tuple[float, float] | None, *, ready: bool | None = None, forgiven: float = 0.0
) -> tuple[float, bool] | None:
    """After how many seconds a child of 2 has used up its time, and whether it was computing."""
    began, patient = pass_time(), Patience(Scripted(pass_time, shares, ready=ready), 2.0)
    patient.look()
    pass_time(forgiven)
    patient.forgive(forgiven)
    while pass_time(0.1) < patient.until:
        try:
            patient.look()
        except Over as error:
            return pytest.approx(pass_time() - began, abs=0.15), error.computing
    return None


def test_a_child_that_computes_has_its_seconds_and_is_told_as_such(pass_time: Any) -> None:
    assert over(pass_time, (1.0, 0.0)) == (2.0, True)


def test_a_child_that_does_nothing_has_its_seconds_too(pass_time: Any) -> None:
    assert over(pass_time, (0.0, 0.0)) == (2.0, False)


def test_time_in_which_others_ran_is_not_the_childs(pass_time: Any) -> None:
    assert over(pass_time, (0.25, 0.75)) == (8.0, True)


def test_time_that_the_system_has_not_added_up_yet_is_not_the_childs(pass_time: Any) -> None:
    assert over(pass_time, (0.2, 0.0), ready=True) == (10.0, True)


def test_a_child_that_does_a_little_now_and_then_is_not_computing(pass_time: Any) -> None:
    assert over(pass_time, (0.1, 0.1), ready=False) == (2.2, False)


def test_nobody_waits_for_ever_on_a_busy_machine(pass_time: Any) -> None:
    assert over(pass_time, (0.01, 0.99)) is None
    assert MOST_TIMES == 10


def test_time_in_which_it_waited_for_its_code_is_not_the_childs(pass_time: Any) -> None:
    assert over(pass_time, (0.0, 0.0), forgiven=3.0) == (5.0, False)
    assert over(pass_time, None, forgiven=3.0) == (5.0, False)


def test_where_the_system_does_not_tell_all_time_counts_and_proves_nothing(pass_time: Any) -> None:
    assert over(pass_time, None) == (2.0, False)


class Waiting(Scripted):
    """A child with the model's code that never answers."""

    def ask(self, *_: object) -> None: ...

    def answer(self, until: float, _: int, watch: Callable[[], None]) -> dict[str, Any]:
        while self._clock(0.1) < until:  # type: ignore[call-arg]
            watch()
        raise frames.Overdue


def test_code_that_sleeps_ran_out_of_time_and_code_that_the_machine_kept_waiting_has_no_result(pass_time: Any) -> None:
    ran = grading._run_in(Waiting(pass_time, (0.0, 0.0)), {}, 1.0, Limits(), "texts[0]", on_disk=False)  # type: ignore[arg-type]
    assert ran["ending"] == Ending.TIME
    with pytest.raises(GraderFailed, match=r"texts\[0\]: .*did not get 1 s of this machine within 10"):
        grading._run_in(Waiting(pass_time, (0.01, 0.99)), {}, 1.0, Limits(), "texts[0]", on_disk=False)  # type: ignore[arg-type]


def test_what_the_system_tells_of_a_process_is_seconds(tmp_path: Path) -> None:
    from workers.reward.sandbox.spent import own_number, spent

    before = spent(own_number())
    assert before is not None
    json.dumps(list(range(300_000)))
    after = spent(own_number())
    assert after is not None and 0 < after.ran_seconds - before.ran_seconds < 5
    assert spent(2**30) is None
