import threading

from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Brings
from workers.keeper import Keeper

BRINGS = Brings(line="samples", slots=8)


class Noting(MemoryLedger):
    """Tells what it was told of its worker, and from which thread."""

    def __init__(self) -> None:
        super().__init__(lambda bell: None)
        self.told: list[tuple[str, Brings | None]] = []
        self.thread = threading.current_thread()

    def stay(self, takes: str = "", brings: Brings | None = None) -> None:
        self.told.append((takes, brings))
        self.thread = threading.current_thread()


def test_an_offer_is_told_at_once_from_another_thread_and_again_at_every_renewal() -> None:
    ledger = Noting()
    keeper = Keeper(ledger)
    keeper.renew()
    keeper.offer("train", BRINGS)
    ledger.thread.join(5)
    assert ledger.thread is not threading.current_thread()
    keeper.renew()
    assert ledger.told == [("", None), ("train", BRINGS), ("train", BRINGS)]


def test_a_withdrawn_offer_is_not_told_again() -> None:
    ledger = Noting()
    keeper = Keeper(ledger)
    keeper.offer("train", BRINGS)
    ledger.thread.join(5)
    keeper.offer()
    ledger.thread.join(5)
    keeper.renew()
    assert ledger.told[1:] == [("", None), ("", None)]
