"""Weights that leave the run: named checkpoints and policy versions, written whole and then entered in the catalog."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from torch import Tensor

from openrl.catalog.repository import Catalog
from openrl.depot.port import Depot
from openrl.domain.checkpoint import Checkpoint, CheckpointPath
from openrl.domain.ids import DepotKey
from openrl.domain.op import SavePolicy, SaveWeights, TrainOp
from openrl.domain.outcome import WeightsSaved
from openrl.ledger.port import Ledger
from workers.model.layout import LoraShape

log = logging.getLogger(__name__)

Adapter = tuple[LoraShape, Tensor]  #: a flat vector [shape.size]

#: Gives fresh sampler weights to a sample engine in the same process, which copies them.
HandOver = Callable[[DepotKey, LoraShape, Tensor], None]


class Saving:
    def __init__(self, ledger: Ledger, depot: Depot, catalog: Catalog, hand_over: HandOver | None) -> None:
        self._ledger, self._depot, self._catalog, self._hand_over = ledger, depot, catalog, hand_over

    def weights(self, op: TrainOp, action: SaveWeights, files: dict[str, bytes]) -> WeightsSaved:
        standing = self._depot.put_folder(action.target, files)
        self._publish(op, action, standing.size_bytes)
        return WeightsSaved(path=action.path)

    def policy(
        self, op: TrainOp, action: SavePolicy, files: dict[str, bytes], adapter: Adapter | None = None
    ) -> WeightsSaved:
        """`adapter` is what the files hold, as it lies in memory; None where it is no adapter. It is handed over only
        if these very files stand in the depot: whoever repeats a turn must not let one engine sample other weights than
        all others do."""
        standing = self._depot.put_folder(action.target, files)
        if not standing.same:
            log.warning("an earlier writer's weights stand", extra={"action": "save_policy", "op": op.id})
        if action.path is not None:
            self._publish(op, action, standing.size_bytes)
        elif self._hand_over is not None and adapter is not None and standing.same:
            self._hand_over(action.target, *adapter)
        return WeightsSaved(path=action.path, sampler=action.sampler)

    def _publish(self, op: TrainOp, action: SaveWeights | SavePolicy, size_bytes: int) -> None:
        assert action.path is not None
        now = datetime.now(UTC)
        checkpoint = Checkpoint(
            path=CheckpointPath.parse(action.path),
            tenant=op.tenant,
            key=action.target,
            op=op.id,
            size_bytes=size_bytes,
            created_at=now,
            has_optimizer=isinstance(action, SaveWeights),
            expires_at=now + timedelta(seconds=action.ttl_seconds) if action.ttl_seconds else None,
            user_metadata=action.user_metadata,
        )
        replaced = self._catalog.publish_checkpoint(checkpoint, overwrite=action.overwrite)
        if replaced is not None:
            self._ledger.retire(replaced, None)
            self._depot.delete_folder(replaced)
