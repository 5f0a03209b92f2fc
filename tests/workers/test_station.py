import threading
import time
from typing import Any

from openrl.domain.ids import WorkerId
from openrl.ledger.memory import MemoryLedger
from workers.keeper import Keeper
from workers.metrics import REGISTRY
from workers.station import Station, step


class Work:
    def __init__(self) -> None:
        self.drained = threading.Event()

    def __call__(self, held: Any) -> Any: ...
    def abort(self, op_id: Any) -> None: ...
    def drain(self) -> None:
        self.drained.set()


def station(drain_seconds: float) -> Station:
    ledger, nothing = MemoryLedger(lambda bell: None), None
    return Station(
        worker=WorkerId("here"),
        redis=nothing,  # type: ignore[arg-type]
        ledger=ledger,
        depot=nothing,  # type: ignore[arg-type]
        keeper=Keeper(ledger),
        drain_seconds=drain_seconds,
    )


def test_draining_ends_training_at_once_and_samples_and_scores_after_their_time() -> None:
    here, works = station(0.2), {kind: Work() for kind in ("train", "sample", "reward")}
    here.works |= works  # type: ignore[arg-type]
    began = time.monotonic()
    here.drain()
    assert works["train"].drained.is_set() and here.keeper.closed
    assert not works["sample"].drained.is_set() and not works["reward"].drained.is_set()
    assert all(work.drained.wait(5) for work in works.values())
    assert time.monotonic() - began >= 0.2


def test_what_is_to_be_done_when_it_drains_is_done_once() -> None:
    here, calls = station(0.0), []
    here.at_drain.append(lambda: calls.append(1))
    assert here.draining_seconds() == 0.0
    here.drain()
    here.drain()
    assert calls == [1] and here.draining_seconds() > 0.0


def test_a_step_of_the_start_is_timed_under_its_name_alone() -> None:
    with step("trying", "/a/folder"):
        pass
    assert REGISTRY.get_sample_value("openrl_worker_start_seconds", {"step": "trying"}) is not None
