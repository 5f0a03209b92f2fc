"""Training ops, carried out: opens an op, fetches its bytes, calls one verb of the engine on the device's thread.

A turn is applied once however often its bell is answered: the last turn of every resident run is remembered with its
outcome, and a repeat gets that. A run that is not resident under the lease at hand is recovered first: its newest
snapshot is loaded and the journal since then applied again, without telling anybody.
"""

import logging
import time
from collections.abc import Callable, Mapping

from openrl.depot.port import Depot
from openrl.domain.errors import (
    CallerError,
    CheckpointMissing,
    ClaimLost,
    DatumTooLarge,
    Draining,
    EngineBusy,
    FullRunsOff,
    MemoryRanOut,
    RunLost,
)
from openrl.domain.ids import DepotKey, OpId, RunId
from openrl.domain.op import (
    CreateRun,
    ForwardBackward,
    LoadWeights,
    OptimStep,
    SavePolicy,
    SaveWeights,
    TrainOp,
    changes_run,
)
from openrl.domain.outcome import Result, RunCreated, StepResult, WeightsLoaded
from openrl.ledger.port import Held, Lease, Ledger
from workers import metrics
from workers.device.loop import DeviceLoop
from workers.model.model_files import holds_model
from workers.train import full_snapshot
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
from workers.train.paging import Paging
from workers.train.residents import Resident, Residents
from workers.train.run_state import RunState
from workers.train.saving import Saving
from workers.train.seating import Seating

log = logging.getLogger(__name__)


class TrainWork:
    def __init__(
        self,
        engine: TrainEngine,
        loop: DeviceLoop[Batch],
        ledger: Ledger,
        depot: Depot,
        saving: Saving,
        residents: Residents,
        paging: Paging[RunState],
        clock: Callable[[], float] = time.monotonic,
        *,
        seating: Seating | None = None,
    ) -> None:
        """`seating` takes full runs to their seat; None where there is none."""
        self._seating = seating
        self._engine, self._loop, self._ledger, self._depot = engine, loop, ledger, depot
        self._saving, self._residents, self._paging, self._clock = saving, residents, paging, clock
        self._draining = False

    def __call__(self, held: Held) -> Result:
        op, lease = held.op, held.lease
        assert isinstance(op, TrainOp)
        assert lease is not None
        if self._draining:
            raise Draining
        since = self._clock() - held.waited_seconds
        # A lapsed claim can bring a turn twice, even at the same time.
        with self._residents.lock(op.run), self._paging.at_work(op.run):
            if self._residents.is_outdated(lease):  # a thread that slept through its turn
                raise ClaimLost(op.id)
            resident = self._residents.under(lease) or self._recover(op, lease)
            if resident.turn > op.turn:  # the same
                raise ClaimLost(op.id)
            if resident.turn < op.turn:
                self._apply(op, resident, since)
            if isinstance(resident.outcome, CallerError):
                raise resident.outcome
            assert resident.outcome is not None
            return resident.outcome

    def abort(self, op_id: OpId) -> None:
        """Turns are short; one that is on the device ends by itself and its result is refused by the ledger."""

    def drain(self) -> None:
        self._draining = True
        self._loop.end_training()
        self._paging.drain()
        if self._seating is not None:
            self._seating.drain()

    # ------------------------------------------------------------------------------------------ applying
    def _apply(self, op: TrainOp, resident: Resident, since: float, *, again: bool = False) -> None:
        """Carry out a turn that waits `since` then, maybe once `again`, and remember how it ended. What is no
        CallerError is raised and leaves no trace."""
        outcome: Result | CallerError
        try:
            outcome = self._do(op, since, again=again)
        except CallerError as error:
            outcome = error
        changed = changes_run(op.action, failed=isinstance(outcome, CallerError)) and self._engine.has(op.run)
        resident.applied(op.turn, outcome, changed=changed, now=self._clock())

    def _recover(self, op: TrainOp, lease: Lease) -> Resident:
        """The run as it was before `op`."""
        started = self._clock()
        self._paging.forget(op.run)
        if lease.snapshot is not None:
            self._restore(op.run, self._snapshot(op.run, lease.snapshot))
        resident = Resident(lease=lease, turn=lease.snapshot_turn, used_at=started, snapshot=lease.snapshot)
        again = [each for each in self._ledger.journal(op.run) if lease.snapshot_turn < each.turn < op.turn]
        for each in again:
            self._apply(each, resident, self._clock(), again=True)
            if isinstance(resident.outcome, CheckpointMissing):  # it was there the first time, and was deleted since
                raise RunLost(op.run)
            if isinstance(resident.outcome, DatumTooLarge | MemoryRanOut):  # it fitted the first time: there, or then
                raise EngineBusy(str(resident.outcome))
        self._residents.runs[op.run] = resident
        metrics.RECOVERED.inc(lease.snapshot is not None or bool(again))
        if lease.snapshot is not None or again:
            log.log(
                logging.INFO if again else logging.DEBUG,  # without any it was only in the depot
                "recovered from turn %d, %d ops applied again, in %.2f s",
                lease.snapshot_turn,
                len(again),
                self._clock() - started,
                extra={"action": "recover", "run": op.run},
            )
        return resident

    def _restore(self, run: RunId, files: Mapping[str, bytes]) -> None:
        if full_snapshot.holds(files):
            self._full_seating().restore(run, files)
        else:
            self._paging.enter(run, self._engine.restored(files))
            self._paging.came()

    def _full_seating(self) -> Seating:
        if self._seating is None:
            raise FullRunsOff
        return self._seating

    def _snapshot(self, run: RunId, key: DepotKey) -> Mapping[str, bytes]:
        try:
            return self._depot.get_folder(key)
        except KeyError:
            raise RunLost(run) from None

    # ------------------------------------------------------------------------------------------ actions
    def _do(self, op: TrainOp, since: float, *, again: bool) -> Result:
        action = op.action
        if op.turn > 0 and not self._engine.has(op.run):
            raise RunLost(op.run)
        match action:
            case CreateRun():
                if action.lora is None:
                    self._full_seating().create(op.run, patient=again)
                else:
                    self._paging.enter(op.run, self._engine.fresh(action.lora))
                return RunCreated(run=op.run)
            case LoadWeights():
                return self._load(op.run, action, again=again)
            case ForwardBackward():
                return self._loop.forward_backward(_batch(op.run, action), op.tenant, since)
            case OptimStep():
                return StepResult(metrics=self._loop.optim_step(op.run, action.adam, op.tenant, since))
            case SaveWeights():
                return self._saving.weights(op, action, self._engine.checkpoint(op.run))
            case SavePolicy():
                return self._saving.policy(op, action, self._engine.policy(op.run), self._engine.adapter(op.run))

    def _load(self, run: RunId, action: LoadWeights, *, again: bool) -> WeightsLoaded:
        try:
            files = self._depot.get_folder(action.source)
        except KeyError:
            raise CheckpointMissing(action.path) from None
        if holds_model(files):
            self._full_seating().load(run, files, with_optimizer=action.with_optimizer, patient=again)
        else:
            self._paging.enter(run, self._engine.read(files, with_optimizer=action.with_optimizer))
        return WeightsLoaded(run=run, path=action.path)


def _batch(run: RunId, action: ForwardBackward) -> Batch:
    return Batch(
        run_id=run,
        data=action.data,
        loss=action.loss,
        loss_config=action.loss_config,
        forward_only=action.forward_only,
    )
