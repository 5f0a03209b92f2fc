"""The train engine of rank 0: says every verb that changes something to the other ranks and carries it out with them.

All ranks hold the same runs: adapter, gradient and moments are on each. What only reads (`policy`, `checkpoint`) is
rank 0's own business. What the others do is in `follower.py`.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from openrl.domain.errors import CallerError
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from workers.model.base import BaseModel
from workers.train import snapshot_file
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
from workers.train.ferry import Ferry
from workers.train.fused_adam import Outcome
from workers.train.group.link import Link
from workers.train.group.pulse import Lost
from workers.train.group.split import Split
from workers.train.group.verbs import Drop, Put, Step, Stop, Train, Verb, encode
from workers.train.run_state import RunState

log = logging.getLogger(__name__)

#: How a verb ended that has nothing more to say.
DONE = "done"


class GroupEngine(TrainEngine):
    """Whatever goes wrong but for a caller's error ends the group: ranks that are out of step cannot be mended."""

    def __init__(
        self,
        base: BaseModel,
        link: Link,
        lost: Lost,
        *,
        name: str = "",
        pack_tokens: int = 16_384,
        memory_bytes: int | None = None,
    ) -> None:
        """The others must `follow` with an engine of the same `pack_tokens`, those of all ranks, on the same base."""
        super().__init__(base, name=name, pack_tokens=pack_tokens, memory_bytes=memory_bytes, sharing=Split(base, link))
        self.ferry = Ferry(base.device, tiers=False)  # what leaves this rank's device leaves the others' too
        self._link, self._lost = link, lost
        self._turn = threading.Lock()  #: one verb at a time: runs come and go beside the passes

    def put(self, run_id: str, state: RunState) -> None:
        files = snapshot_file.write(state)
        with self._together(Put(run_id, list(files)), *files.values()):
            super().put(run_id, state)

    def drop(self, run_id: str) -> None:
        with self._together(Drop(run_id)):
            super().drop(run_id)

    def forward_backward(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        with self._together(Train(list(batches))) as end:
            results = super().forward_backward(batches)
            end.told = told(results)
        return results

    def optim_step(self, run_id: str, params: AdamParams) -> dict[str, float]:
        (outcome,) = self.optim_steps([(run_id, params)])
        if not isinstance(outcome, dict):
            raise outcome
        return outcome

    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]]) -> list[Outcome]:
        with self._together(Step(list(asked))) as end:
            results = super().optim_steps(asked)
            end.told = told(results)
        return results

    def stop(self) -> None:
        """The others stop following; the engine is of no use after."""
        with self._turn:
            self._link.send(encode(Stop()))

    @contextmanager
    def _together(self, verb: Verb, *files: bytes | memoryview) -> Iterator["_End"]:
        """The others are told, and must end as the block did."""
        end = _End()
        try:
            with self._turn:
                yield from self._carried_out(end, verb, files)
        except CallerError:
            raise
        except BaseException as error:
            log.exception("a verb failed on rank 0", extra={"action": "group"})
            self._lost(f"{type(error).__name__} on rank 0")
            raise

    def _carried_out(self, end: "_End", verb: Verb, files: Sequence[bytes | memoryview]) -> Iterator["_End"]:
        for data in (encode(verb), *files):
            self._link.send(data)
        try:
            yield end
        except CallerError as error:
            self._link.agree(type(error).__name__)
            raise
        self._link.agree(end.told)


@dataclass(slots=True)
class _End:
    """How a verb ended."""

    told: str = DONE


def told(results: Sequence[BatchResult | CallerError] | Sequence[Outcome]) -> str:
    """What ranks must have alike: of each batch its loss and of each step its gradient's norm, to the bit; or the
    error."""
    return " ".join(map(_told, results))


def _told(result: BatchResult | Outcome) -> str:
    match result:
        case BatchResult():
            return result.metrics["loss:sum"].hex()
        case dict():
            return result["grad_norm"].hex()
    return type(result).__name__
