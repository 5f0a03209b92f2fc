"""Reward ops, carried out: a child that is at hand scores the op's texts one after the other."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from openrl.domain.errors import (
    ClaimLost,
    Draining,
    FieldInvalid,
    GraderFailed,
    RewardBroken,
    RewardUnknown,
    RewardWithheld,
)
from openrl.domain.ids import OpId
from openrl.domain.op import RewardOp, ScoreTexts
from openrl.domain.outcome import Scores
from openrl.ledger.port import Held
from openrl.rewards import Declared, RewardResult
from openrl.telemetry import traces
from workers.reward import attempts
from workers.reward.grading import Grading, Overrun
from workers.reward.memo import Memo, key_of
from workers.reward.plain import scores_of
from workers.reward.sandbox.nursery import Nursery
from workers.reward.sandbox.pool import Pool

log = logging.getLogger(__name__)

#: What one op may take of a worker, at most.
OP_SECONDS: Final = 600.0


class RewardWork:
    def __init__(self, nursery: Nursery, *, max_attempts: int, withheld: Mapping[str, str] | None = None) -> None:
        """`withheld` are functions that are not for clients here, and why."""
        self._nursery, self._max_attempts, self._withheld = nursery, max_attempts, withheld or {}
        self._pool, self._memo = Pool(nursery), Memo()
        self._lock = threading.Lock()
        self._gradings: dict[OpId, Grading] = {}
        self._draining = False

    def __call__(self, held: Held) -> Scores:
        assert isinstance(held.op, RewardOp) and isinstance(held.op.action, ScoreTexts)
        declared = self._declared(held.op.action.reward)
        try:
            with traces.span("grade", reward=held.op.action.reward, texts=len(held.op.action.texts)):
                results = self._results(held.op, held.op.action, declared)
        except GraderFailed as error:
            log.warning("%s", error, extra={"action": "score", "op": held.op.id, "attempt": held.attempt})
            raise attempts.failure(error, held.attempt, self._max_attempts) from None
        return scores_of(results)

    def abort(self, op_id: OpId) -> None:
        with self._lock:
            grading = self._gradings.get(op_id)
        if grading is not None:
            grading.call_off(ClaimLost(op_id))

    def drain(self) -> None:
        with self._lock:
            self._draining = True
            gradings = tuple(self._gradings.values())
        for grading in gradings:
            grading.call_off(Draining())

    def close(self) -> None:
        self._pool.close()

    def _declared(self, name: str) -> Declared:
        listing = self._nursery.listing
        if name in self._withheld:
            raise RewardWithheld("reward", name, self._withheld[name])
        if name in listing.broken:
            raise RewardBroken(name, listing.broken[name])
        if name not in listing.functions:
            raise RewardUnknown(name, tuple(sorted(listing.functions)))
        return listing.functions[name]

    @contextmanager
    def _grading(self, op: RewardOp, action: ScoreTexts, declared: Declared) -> Iterator[Grading]:
        with self._pool.lent(reusable=not (declared.executes or declared.fresh)) as child:
            grading = Grading(self._nursery, child, declared, action)
            with self._lock:
                if self._draining:
                    raise Draining
                self._gradings[op.id] = grading
            try:
                yield grading
            finally:
                with self._lock:
                    del self._gradings[op.id]

    def _results(self, op: RewardOp, action: ScoreTexts, declared: Declared) -> list[RewardResult]:
        """A text that takes up its time ends its child; the texts behind it are scored by another."""
        keys = _keys(declared, action)
        kept = {at: result for at, key in enumerate(keys) if (result := self._memo.get(key)) is not None}
        until = time.monotonic() + OP_SECONDS
        while missing := [at for at in range(len(action.texts)) if at not in kept]:
            try:
                with self._grading(op, action, declared) as grading:
                    for at, result in zip(missing, grading.scores(missing), strict=True):
                        _require_time(until, at)
                        kept[at] = result
                        if keys:
                            self._memo.put(keys[at], result)
            except Overrun as overrun:
                _require_time(until, overrun.at)
                kept[overrun.at] = _overrun(declared, overrun.at)
        return [kept[at] for at in range(len(action.texts))]


def _require_time(until: float, at: int) -> None:
    if time.monotonic() > until:
        raise FieldInvalid("texts", f"a request gets {OP_SECONDS:g} s and {at} texts took them; send fewer")


def _overrun(declared: Declared, at: int) -> RewardResult:
    """What the function says that such a text is worth. Raises GraderFailed where it says nothing."""
    if declared.overrun is None:
        raise GraderFailed(f"texts[{at}]", f"took longer than {declared.seconds:g} s")
    return RewardResult(declared.overrun, info={"ending": "time"})


def _keys(declared: Declared, action: ScoreTexts) -> list[bytes]:
    """Under which the scores are kept; none where they are not."""
    if not declared.pure:
        return []
    pairs = zip(action.texts, action.contexts, strict=True)
    return [key_of(action.reward, declared.version, *pair, action.params) for pair in pairs]
