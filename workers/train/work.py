"""Training ops, carried out: opens an op, fetches its bytes, calls one verb of the engine on the device's thread.

A turn is applied once however often its bell is answered: the last turn of every resident run is remembered with its
result, and a repeat gets that result.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from openrl.catalog.repository import Catalog
from openrl.depot.port import Depot
from openrl.domain.checkpoint import Checkpoint, CheckpointPath
from openrl.domain.errors import CheckpointMissing, LeaseLost, RunLost
from openrl.domain.ids import DepotKey, OpId, RunId
from openrl.domain.op import (
    CreateRun,
    ForwardBackward,
    LoadWeights,
    OptimStep,
    SavePolicy,
    SaveWeights,
    TrainOp,
)
from openrl.domain.outcome import (
    Result,
    RunCreated,
    StepResult,
    WeightsLoaded,
    WeightsSaved,
)
from workers.device.loop import DeviceLoop
from workers.train.batch import Batch
from workers.train.engine import TrainEngine

HandOver = Callable[[DepotKey, dict[str, bytes]], None]


@dataclass(frozen=True, slots=True)
class _Applied:
    turn: int
    result: Result


class TrainWork:
    def __init__(
        self,
        engine: TrainEngine,
        loop: DeviceLoop[Batch],
        depot: Depot,
        catalog: Catalog,
        hand_over: HandOver | None = None,
    ) -> None:
        """`hand_over` gives fresh sampler weights to a sample engine in the same process."""
        self._engine, self._loop, self._depot, self._catalog = engine, loop, depot, catalog
        self._hand_over = hand_over
        self._applied: dict[RunId, _Applied] = {}
        self._turns: defaultdict[RunId, threading.Lock] = defaultdict(threading.Lock)

    def __call__(self, op: TrainOp) -> Result:
        with self._turns[op.run]:  # a lapsed claim can bring a turn twice, even at the same time
            applied = self._applied.get(op.run)
            if applied is not None and applied.turn > op.turn:  # a thread that slept through its turn
                raise LeaseLost(op.id)
            if applied is not None and applied.turn == op.turn:
                return applied.result
            result = self._do(op)
            self._applied[op.run] = _Applied(op.turn, result)
            return result

    def abort(self, op_id: OpId) -> None:
        """Turns are short; one that is on the device ends by itself and its result is refused by the ledger."""

    def drain(self) -> None:
        """The device's loop ends what waits for it."""

    def _do(self, op: TrainOp) -> Result:
        action = op.action
        if op.turn > 0 and not self._loop.call(lambda: self._engine.has(op.run)):
            raise RunLost(op.run)
        match action:
            case CreateRun():
                self._loop.call(lambda: self._engine.create(op.run, action.lora))
                return RunCreated(run=op.run)
            case LoadWeights():
                return self._load(op.run, action)
            case ForwardBackward():
                return self._loop.forward_backward(
                    Batch(
                        run_id=op.run,
                        data=action.data,
                        loss=action.loss,
                        loss_config=action.loss_config,
                        forward_only=action.forward_only,
                    )
                )
            case OptimStep():
                return StepResult(metrics=self._loop.call(lambda: self._engine.optim_step(op.run, action.adam)))
            case SaveWeights():
                return self._save_weights(op, action)
            case SavePolicy():
                return self._save_policy(op, action)

    def _load(self, run: RunId, action: LoadWeights) -> WeightsLoaded:
        try:
            files = self._depot.get_folder(action.source)
        except KeyError:
            raise CheckpointMissing(action.path) from None
        self._loop.call(lambda: self._engine.load(run, files, with_optimizer=action.with_optimizer))
        return WeightsLoaded(run=run, path=action.path)

    def _save_weights(self, op: TrainOp, action: SaveWeights) -> WeightsSaved:
        files = self._loop.call(lambda: self._engine.checkpoint(op.run))
        size = self._depot.put_folder(action.target, files)
        self._publish(op, action, size, has_optimizer=True)
        return WeightsSaved(path=action.path)

    def _save_policy(self, op: TrainOp, action: SavePolicy) -> WeightsSaved:
        files = self._loop.call(lambda: self._engine.adapter(op.run))
        size = self._depot.put_folder(action.target, files)
        if action.path is not None:
            self._publish(op, action, size, has_optimizer=False)
        elif self._hand_over is not None:
            self._hand_over(action.target, files)
        return WeightsSaved(path=action.path, sampler=action.sampler)

    def _publish(self, op: TrainOp, action: SaveWeights | SavePolicy, size: int, *, has_optimizer: bool) -> None:
        assert action.path is not None
        now = datetime.now(UTC)
        checkpoint = Checkpoint(
            path=CheckpointPath.parse(action.path),
            tenant=op.tenant,
            key=action.target,
            op=op.id,
            size_bytes=size,
            created_at=now,
            has_optimizer=has_optimizer,
            expires_at=now + timedelta(seconds=action.ttl_seconds) if action.ttl_seconds else None,
            user_metadata=action.user_metadata,
        )
        replaced = self._catalog.publish_checkpoint(checkpoint, overwrite=action.overwrite)
        if replaced is not None:
            self._depot.delete_folder(replaced)
