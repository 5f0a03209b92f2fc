from typing import Any

import pytest

from openrl.domain.ids import DepotKey, RunId
from openrl.ledger.port import Lease, Loads
from workers.train.balance import Balance, surplus
from workers.train.residents import Resident, Residents


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        (0, (), 0),
        (6, (), 0),
        (6, (0,), 3),
        (3, (3,), 0),
        (4, (3,), 0),
        (5, (3,), 1),
        (3, (3, 0), 1),
        (1, (0,), 0),
        (2, (9,), 0),
    ],
)
def test_a_share_is_rounded_up(mine: int, others: tuple[int, ...], expected: int) -> None:
    assert surplus(Loads(mine=mine, others=others)) == expected


def test_giving_surplus_away_comes_to_an_end_with_nobody_far_from_the_rest() -> None:
    loads = [17, 0, 5, 0]
    for _ in range(100):
        for at, mine in enumerate(loads):
            if surplus(Loads(mine=mine, others=tuple(loads[:at] + loads[at + 1 :]))):
                loads[at] -= 1
                loads[loads.index(min(loads))] += 1
    assert sum(loads) == 22
    assert max(loads) == 6, "22 / 4, rounded up"


class Scales:
    """A ledger that knows loads only."""

    def __init__(self, mine: int, *others: int) -> None:
        self.mine, self.others = mine, others

    def loads(self) -> Loads:
        return Loads(mine=self.mine, others=self.others)


class Spares:
    """Snapshots that let go of those runs only."""

    def __init__(self, *spares: str) -> None:
        self.spares, self.asked = spares, list[str]()

    def hand_over(self, run: str) -> bool:
        self.asked.append(run)
        return run in self.spares


def residents(**used_at: float) -> Residents:
    runs = {}
    for name, at in used_at.items():
        changed_at = at if name.startswith("changed") else None
        lease = Lease(run=RunId(name), epoch=1, snapshot=DepotKey("s"))
        runs[RunId(name)] = Resident(lease=lease, turn=1, changed_at=changed_at, used_at=at)
    return Residents(runs)


def balance(ledger: Any, here: Residents, snapshots: Any) -> Balance:
    return Balance(ledger, here, snapshots, clock=lambda: 62.0)


def test_one_run_is_let_go_at_a_time_the_one_unused_for_longest_first() -> None:
    spares = Spares("old", "busy", "changed")
    balance(Scales(4, 0), residents(changed=3.5, new=6.0, busy=5.0, old=4.0, asleep=1.0), spares).tick()
    assert spares.asked == ["old"]


def test_a_run_that_cannot_be_spared_stays_and_the_next_one_goes() -> None:
    spares = Spares("changed")
    balance(Scales(4, 0), residents(changed=3.5, new=6.0, busy=5.0, old=4.0, asleep=1.0), spares).tick()
    assert spares.asked == ["old", "busy", "new", "changed"]


def test_who_has_no_more_than_its_share_keeps_all() -> None:
    spares = Spares("old")
    balance(Scales(1, 0), residents(old=4.0), spares).tick()
    assert spares.asked == []


def test_a_run_too_large_to_move_stays() -> None:
    spares = Spares("old", "busy")
    here = residents(new=6.0, busy=5.0, old=4.0)
    ledger: Any = Scales(4, 0)
    snapshots: Any = spares
    Balance(ledger, here, snapshots, clock=lambda: 62.0, stays=lambda run: run == "old").tick()
    assert spares.asked == ["busy"]
