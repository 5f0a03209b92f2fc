"""The train engine of rank 0: says every verb that changes something to the other ranks and carries it out with them.

All ranks hold the same runs: adapter, gradient and moments are on each. What only reads (`adapter`, `checkpoint`) is
rank 0's own business. What the others do is in `follower.py`.
"""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from openrl.domain.errors import CallerError
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.base import BaseModel
from workers.train.batch import Batch
from workers.train.engine import TrainEngine
from workers.train.group.link import Link
from workers.train.group.pulse import Lost
from workers.train.group.split import Split
from workers.train.group.verbs import Create, Drop, Load, Step, Steps, Stop, Train, Verb, encode

log = logging.getLogger(__name__)

#: How a verb ended that has nothing more to say.
DONE = "done"


class GroupEngine(TrainEngine):
    """Whatever goes wrong but for a caller's error ends the group: ranks that are out of step cannot be mended."""

    def __init__(self, base: BaseModel, link: Link, lost: Lost, *, name: str = "", pack_tokens: int = 16_384) -> None:
        """The others must `follow` with an engine of the same `pack_tokens`, those of all ranks, on the same base."""
        super().__init__(base, name=name, pack_tokens=pack_tokens, carry_out=Split(base, link))
        self._link, self._lost = link, lost

    def create(self, run_id: str, lora: LoraSpec) -> None:
        lora = lora if lora.seed is not None else replace(lora, seed=secrets.randbits(63))
        with self._together(Create(run_id, lora)):
            super().create(run_id, lora)

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        with self._together(Load(run_id, with_optimizer, list(files)), *files.values()):
            super().load(run_id, files, with_optimizer=with_optimizer)

    def drop(self, run_id: str) -> None:
        with self._together(Drop(run_id)):
            super().drop(run_id)

    def forward_backward(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        with self._together(Train(list(batches))) as end:
            results = super().forward_backward(batches)
            end.told = told(results)
        return results

    def optim_step(self, run_id: str, params: AdamParams) -> dict[str, float]:
        with self._together(Step(run_id, params)):
            return super().optim_step(run_id, params)

    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]]) -> list[dict[str, float] | CallerError]:
        with self._together(Steps(list(asked))) as end:
            results = super().optim_steps(asked)
            end.told = told_of_steps(results)
        return results

    def stop(self) -> None:
        """The others stop following; the engine is of no use after."""
        self._link.send(encode(Stop()))

    @contextmanager
    def _together(self, verb: Verb, *files: bytes) -> Iterator["_End"]:
        """The others are told, and must end as the block did."""
        end = _End()
        try:
            for data in (encode(verb), *files):
                self._link.send(data)
            try:
                yield end
            except CallerError as error:
                self._link.agree(type(error).__name__)
                raise
            self._link.agree(end.told)
        except CallerError:
            raise
        except BaseException as error:
            log.exception("a verb failed on rank 0", extra={"action": "group"})
            self._lost(f"{type(error).__name__} on rank 0")
            raise


@dataclass(slots=True)
class _End:
    """How a verb ended."""

    told: str = DONE


def told(results: Sequence[BatchResult | CallerError]) -> str:
    """What ranks must have alike of a forward_backward: each batch's loss to the bit, or its error."""
    ends = [
        each.metrics["loss:sum"].hex() if isinstance(each, BatchResult) else type(each).__name__ for each in results
    ]
    return " ".join(ends)


def told_of_steps(results: Sequence[dict[str, float] | CallerError]) -> str:
    """The same of several optimizer steps: each gradient's norm, or its error."""
    return " ".join(each["grad_norm"].hex() if isinstance(each, dict) else type(each).__name__ for each in results)
