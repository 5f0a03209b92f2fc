"""Queues, and the lives of ops, as OpenRL's own API tells of them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from openrl.domain.ids import TenantId
from openrl.domain.outcome import Record
from openrl.domain.worker import Role, WorkerInfo
from openrl.ledger.census import Life, QueueLoad, Share
from openrl.ledger.port import Place
from queues.lanes import REWARD_LINE, sample_line, train_queue


def queue_fields(
    loads: Sequence[QueueLoad], workers: Sequence[WorkerInfo], models: Iterable[str], tenant: TenantId
) -> list[dict[str, Any]]:
    """Those of the models and of rewards, and any other with something in it; of one tenant the details."""
    known = _known(models)
    by_name = {load.name: load for load in loads}
    others = [name for name in by_name if name not in known]
    return [
        _queue(name, by_name.get(name), *known.get(name, (name.partition(".")[0], None)), workers, tenant)
        for name in (*known, *others)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """A queue as operators see it: whoever's its ops are."""

    kind: str  #: train, sample or reward
    base_model: str  #: empty for rewards; the name's slug for a model that nobody serves or awaits
    workers: int
    slots: int
    waiting: int
    held: int
    oldest_seconds: float | None


def depths(loads: Sequence[QueueLoad], workers: Sequence[WorkerInfo], models: Iterable[str]) -> list[Depth]:
    """Of the models and of rewards, and any other with something in it."""
    known = _known(models)
    by_name = {load.name: load for load in loads}
    names = [*known, *(name for name in by_name if name not in known)]
    return [
        _depth(name, by_name.get(name), *known.get(name, (name.partition(".")[0], None)), workers) for name in names
    ]


def _depth(name: str, load: QueueLoad | None, kind: str, model: str | None, workers: Sequence[WorkerInfo]) -> Depth:
    listening = [worker for worker in workers if _listens(worker, kind, model)]
    ages = [share.oldest_seconds for share in load.shares if share.oldest_seconds is not None] if load else []
    slots = sum(worker.slots for worker in listening) if kind == "train" else load.slots if load else 0
    return Depth(
        kind=kind,
        base_model=model or name.partition(".")[2],
        workers=len(listening),
        slots=slots,
        waiting=load.waiting if load else 0,
        held=load.held if load else 0,
        oldest_seconds=max(ages, default=None),
    )


def _known(models: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """Kind and model by the queue's name."""
    names: dict[str, tuple[str, str | None]] = {}
    for model in sorted(models):
        names |= {train_queue(model): ("train", model), sample_line(model): ("sample", model)}
    return names | {REWARD_LINE: ("reward", None)}


def _queue(
    name: str,
    load: QueueLoad | None,
    kind: str,
    model: str | None,
    workers: Sequence[WorkerInfo],
    tenant: TenantId,
) -> dict[str, Any]:
    own = next((share for share in load.shares if share.tenant == tenant), None) if load is not None else None
    return {
        "queue": name,
        "kind": kind,
        "model": model,
        "workers": sum(_listens(worker, kind, model) for worker in workers),
        "slots": None if kind == "train" else load.slots if load is not None else 0,
        "waiting": load.waiting if load is not None else 0,
        "running": load.held if load is not None else 0,
        "own": share_fields(own),
    }


def share_fields(share: Share | None) -> dict[str, Any]:
    """`seconds` is until the last of them is begun, where that is known."""
    return {
        "waiting": share.waiting if share is not None else 0,
        "running": share.held if share is not None else 0,
        "oldest_seconds": share.oldest_seconds if share is not None else None,
        "seconds": share.seconds if share is not None else None,
    }


def _listens(worker: WorkerInfo, kind: str, model: str | None) -> bool:
    if worker.draining:
        return False
    if kind == "reward":
        return worker.role is Role.REWARD
    return worker.role in (Role.DEVICE, Role(kind)) and model in {card.name for card in worker.cards}


def life_fields(record: Record, life: Life, place: Place | None, why: str | None) -> dict[str, Any]:
    """`worker` has the op, or had it as it settled; `rung_again` is null until it is rung and once it has settled."""
    return {
        "attempts": record.attempts,
        "worker": life.holder or None,
        "appended_at": _when(life.appended),
        "claimed_at": _when(life.claimed),
        "settled_at": _when(life.settled),
        "age_seconds": (life.now if life.settled is None else life.settled) - life.appended,
        "rung_again": life.rung_again,
        "queue": record.queue or None,
        "line": None if place is None else {"name": life.line, "ahead": place.ahead, "seconds": place.seconds},
        "waits_because": why,
        "after": {"count": life.members, "ops": [{"op_id": op, "status": status} for op, status in life.after]},
    }


def _when(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
