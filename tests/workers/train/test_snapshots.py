from pathlib import Path

from openrl.depot.filesystem import FsspecDepot
from openrl.domain.ids import DepotKey, RunId
from openrl.domain.outcome import StepResult
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Lease
from workers.train.residents import Resident, Residents
from workers.train.snapshots import Snapshots

BROKEN, SOUND = RunId("broken"), RunId("sound")


class AlwaysKept(MemoryLedger):
    """Takes every snapshot."""

    def snapshotted(self, lease: Lease, turn: int, key: DepotKey) -> DepotKey | None:
        return None


def _state(run: RunId) -> dict[str, bytes]:
    if run == BROKEN:
        raise RuntimeError("this run cannot be read")
    return {"adapter": b"weights"}


def test_a_run_that_cannot_be_written_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    residents, depot = Residents(), FsspecDepot(f"file://{tmp_path}")
    for at, run in enumerate((BROKEN, SOUND)):
        residents.runs[run] = Resident(lease=Lease(run=run, epoch=1), turn=0)
        residents.runs[run].applied(1, StepResult(metrics={}), changed=True, now=float(at))
    snapshots = Snapshots(
        residents,
        AlwaysKept(lambda bell: None),
        depot,
        state=_state,
        forget=residents.runs.pop,
        every_seconds=5.0,
        idle_seconds=900.0,
        clock=lambda: 20.0,
    )
    snapshots.tick()
    assert residents.runs[SOUND].changed_at is None
    assert residents.runs[BROKEN].changed_at == 20.0, "tried again, but not before the others"
    assert len({key.split("/")[1] for key in depot.list("snapshots")}) == 1
