"""The workers' lines of `openrl status`: who is at work and how busy, as they last announced it themselves."""

import redis

from openrl.cli.probes import connect
from openrl.domain.errors import LedgerUnreachable
from openrl.domain.worker import WorkerInfo
from openrl.ledger.roster import RedisRoster


def worker_lines(redis_url: str) -> list[str]:
    """One for each worker; one that says so where the broker does not answer."""
    try:
        with connect(redis_url) as client:
            workers = RedisRoster(client).workers()
    except (LedgerUnreachable, redis.RedisError) as error:
        return [f"  workers unknown: {error}"]
    return [worker_line(worker) for worker in workers]


def worker_line(worker: WorkerInfo) -> str:
    models = ", ".join(card.name for card in worker.cards)
    parts = [f"{worker.slots} slots", *([models] if models else [])]
    if worker.use is not None:
        train, sample = worker.use.train, worker.use.sample
        parts.append(
            f"busy {worker.use.busy:.0%} of {worker.use.seconds:.0f} s"
            f" (training {train.seconds:.1f} s, {train.tokens} tokens; sampling {sample.seconds:.1f} s,"
            f" {sample.tokens} tokens)"
        )
    return f"  {worker.role:<7} {worker.id}: {'; '.join(parts)}"
