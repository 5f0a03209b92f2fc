"""Workers as OpenRL's own API tells of them."""

from dataclasses import asdict
from typing import Any

from openrl.domain.worker import WorkerInfo


def worker_fields(worker: WorkerInfo) -> dict[str, Any]:
    """`use` is null for a worker without a device; its `seconds` are those since the device began."""
    return {
        "id": worker.id,
        "role": worker.role,
        "models": [card.name for card in worker.cards],
        "rewards": list(worker.rewards),
        "slots": worker.slots,
        "draining": worker.draining,
        "since": worker.started_at.isoformat(),
        "use": asdict(worker.use) if worker.use is not None else None,
    }
