"""The desk: claim an op, let the work be done, write down how it ended. The same for every queue."""

import logging
import time

from openrl.domain.errors import CallerError, ClaimLost, Draining, PassingError
from openrl.domain.ids import OpId
from openrl.domain.op import TrainOp
from openrl.domain.outcome import failure_of
from openrl.ledger.port import Held, Ledger
from openrl.telemetry import logs, traces
from workers import metrics
from workers.keeper import Keeper
from workers.work import Work

log = logging.getLogger(__name__)


def serve(ledger: Ledger, keeper: Keeper, work: Work, op_id: OpId, trace: str = "") -> None:
    """Answer one bell. What the op failed with is raised again once written down, so that whoever watches sees it.
    `trace` is that of the request that brought the op in."""
    held = ledger.claim(op_id)
    if held is None:  # settled, held elsewhere, not its turn, or worn out: a bell may ring twice
        return
    op = held.op
    run, kind = op.run if isinstance(op, TrainOp) else None, op.action.kind
    with (
        logs.about(op=op.id, run=run, tenant=op.tenant),
        traces.span(kind, trace, op=op.id, run=run, attempt=held.attempt, waited_seconds=held.waited_seconds),
    ):
        _serve(ledger, keeper, work, held)


def _serve(ledger: Ledger, keeper: Keeper, work: Work, held: Held) -> None:
    started, kind = time.monotonic(), held.op.action.kind
    metrics.WAITED.labels(kind).observe(held.waited_seconds)
    with keeper.keeping(held, lost=work.abort):
        outcome = "failed"
        try:
            outcome = _carry_out(ledger, work, held, closed=keeper.closed)
            log.debug("op carried out", extra=_fields(held, started))
        except ClaimLost:
            outcome = "lost"
            log.warning("result refused: the op is held by another now", extra=_fields(held, started))
        except CallerError:
            outcome = "refused"
            raise
        finally:
            metrics.OPS.labels(kind, outcome).inc()
            metrics.TOOK.labels(kind).observe(time.monotonic() - started)


def _carry_out(ledger: Ledger, work: Work, held: Held, *, closed: bool) -> str:
    """How it ended: done, given_back, or drained."""
    try:
        if closed:
            raise Draining
        result = work(held)
    except PassingError as error:
        drained = isinstance(error, Draining)
        ledger.give_back(held, error, counts=not drained)
        return "drained" if drained else "given_back"
    except CallerError as error:
        ledger.failed(held, failure_of(error))
        raise
    except Exception as error:  # a bug is still an answer: no client waits on silence
        ledger.failed(held, failure_of(error), applied=False)
        raise
    else:
        ledger.done(held, result)
        return "done"


def _fields(held: Held, started: float) -> dict[str, object]:
    return {
        "action": held.op.action.kind,
        "op": held.op.id,
        "tenant": held.op.tenant,
        "attempt": held.attempt,
        "seconds": round(time.monotonic() - started, 4),
    }
