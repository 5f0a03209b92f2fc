from openrl.domain.ids import OpId
from openrl.ledger.turns import Turns


def of(*turns: int) -> Turns:
    it = Turns()
    for turn in turns:
        it.add(turn, OpId(f"op{turn}"), now=float(turn))
    return it


def test_a_run_stands_at_its_first_turn_that_has_not_ended() -> None:
    it = of(0, 1, 2)
    assert it.here == "op0"
    it.end(1, now=3.0)
    assert it.here == "op0"
    it.end(0, now=4.0)
    assert (it.here, it.next) == ("op2", 2)
    assert it.is_over(1) and not it.is_over(2)


def test_a_turn_that_is_missing_is_awaited_from_when_later_ones_are_there() -> None:
    it = of(1)
    assert it.here is None and it.is_awaited(0) and it.gap_since == 1.0
    it.add(0, OpId("op0"), now=5.0)
    assert it.here == "op0" and it.gap_since is None


def test_a_gap_is_left_after_so_long_and_no_sooner() -> None:
    it = of(3)
    it.end(1, now=4.0)
    it.end(4, now=4.0)
    assert not it.leave_gap(now=12.9, longest_seconds=10.0)
    assert it.leave_gap(now=13.0, longest_seconds=10.0)
    assert (it.here, it.gap_since) == ("op3", None)
    it.end(3, now=14.0)
    assert it.next == 5


def test_nothing_is_awaited_where_nothing_waits() -> None:
    it = of(0)
    it.end(0, now=1.0)
    assert it.here is None and it.gap_since is None and not it.leave_gap(now=1e9, longest_seconds=0.0)


def test_a_snapshot_takes_its_turns_out_of_the_journal() -> None:
    it = of()
    it.journal = {turn: OpId(f"op{turn}") for turn in (1, 2, 4)}
    it.snapshotted(2)
    assert it.journal == {4: "op4"}
