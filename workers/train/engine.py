"""The train engine: Tinker's verbs over tensors for many runs on one base model.

It knows no ops, HTTP, brokers or settings. One thread calls at a time what runs the model; what a run owns may be put,
moved and read by any thread while no call is at work on that run.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Protocol

from torch import Tensor

from openrl.domain.errors import CallerError, FullRunsOff, GradientNotFinite, RunNotFound
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.adapter_files import to_files
from workers.model.allocation import ran_out
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.model_files import holds_model
from workers.train import adam, checkpoint_files, fused_adam, packing, snapshot_file
from workers.train.batch import Batch, check
from workers.train.course import Course
from workers.train.ferry import Ferry, pinned_bytes
from workers.train.full import FullRun
from workers.train.learners import Adapters
from workers.train.memory import Member, Memory, kept_bytes
from workers.train.objective import metrics_of
from workers.train.pack import Pack
from workers.train.packing import Holds, Row
from workers.train.run_state import RunState
from workers.train.seat import Seat
from workers.train.whole_model import WholeModel

__all__ = ["Batch", "TrainEngine"]


class Sharing(Protocol):
    """How the processes of a group share packs. All of them must ask the same in the same order."""

    def room(self, mine: int, /) -> int:
        """Of everybody's bytes the least."""
        ...

    def finish(self, pack: Pack, pack_tokens: int, holds: Holds, /) -> None:
        """Each runs its rows, in passes that hold its part of `pack_tokens`; then everybody has the whole."""
        ...


class TrainEngine:
    """Runs by id, each one adapter with its optimizer (or all weights of a model), and the passes that train them."""

    def __init__(
        self,
        base: BaseModel,
        *,
        name: str = "",
        pack_tokens: int = 16_384,
        memory_bytes: int | None = None,
        sharing: Sharing | None = None,
        seat: Seat | None = None,
    ) -> None:
        """`name` is the base model's in saved files. A pass holds up to `pack_tokens` tokens, padding included, and
        takes up to `memory_bytes`; None looks how much is free. With `sharing` other processes run passes too. `seat`
        is where a run of all weights may be; None takes none."""
        assert sharing is None or seat is None, "a model that is cut over processes is not copied"
        self.base = base
        self.memory = Memory(base, memory_bytes)
        self.ferry = Ferry(base.device)
        self._name, self._pack_tokens, self._sharing = name, pack_tokens, sharing
        self.seat = seat
        self._runs: dict[str, RunState] = {}
        self._places = self._padding = 0  #: of the last forward_backward: tokens that ran, padding among them

    # ------------------------------------------------------------------------------------------------ runs
    def fresh(self, lora: LoraSpec) -> RunState:
        """A new run's state. Raises FieldInvalid for an impossible spec. From any thread."""
        return RunState.fresh(self.base.layout, lora)

    def read(self, files: Mapping[str, bytes], *, with_optimizer: bool) -> RunState:
        """The state in files that `checkpoint` wrote, or in those of any PEFT adapter where `with_optimizer` is false.
        Raises AdapterUnsupported. From any thread."""
        return checkpoint_files.read(self.base.layout, files, with_optimizer=with_optimizer)

    def restored(self, files: Mapping[str, bytes]) -> RunState:
        """The state that `snapshot` wrote. Raises AdapterUnsupported. From any thread."""
        return snapshot_file.read(self.base.layout, files)

    def put(self, run_id: str, state: RunState) -> None:
        """A run with this state; one of that id is replaced. From any thread, as everything about a run that no call is
        at work on."""
        self._runs[run_id] = self.ferry.to_device(state)

    def to_device(self, run_id: str) -> None:
        """A run that was sent to main memory comes back, if it is not there yet; before any call that computes with it.
        Raises RunNotFound. From any thread."""
        self._runs[run_id] = self.ferry.to_device(self.run(run_id))

    def to_host(self, run_id: str) -> int:
        """A run leaves the device's memory for main memory. Answers the bytes it takes there. Raises RunNotFound. From
        any thread."""
        self._runs[run_id] = moved = self.ferry.to_host(self.run(run_id))
        return sum(pinned_bytes(vector.nbytes) for vector in moved.vectors)

    def create(self, run_id: str, lora: LoraSpec | None) -> None:
        """A new run with a fresh adapter, or of all weights where `lora` is None: that one copies the base model and is
        for the thread that runs it. Raises FullRunsOff, FullRunTaken, FullRunWontFit."""
        if lora is None:
            self._full_seat().create(run_id)
        else:
            self.put(run_id, self.fresh(lora))

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """A run with the weights in `files` (PEFT's format, or a Hugging Face folder for a run of all weights), and
        with the optimizer's moments if asked for; no gradient. A run of all weights that is not there yet is created.
        Raises AdapterUnsupported, WeightsUnsupported, and what `create` raises."""
        if holds_model(files):
            self._full_seat().load(run_id, files, with_optimizer=with_optimizer)
        else:
            self.put(run_id, self.read(files, with_optimizer=with_optimizer))

    def drop(self, run_id: str) -> None:
        """Forgets a run, if it is there."""
        self._runs.pop(run_id, None)
        if self.seat is not None:
            self.seat.drop(run_id)

    def has(self, run_id: str) -> bool:
        return run_id in self._runs or self.is_full(run_id)

    def is_full(self, run_id: str) -> bool:
        """Whether it is here and trains all weights."""
        return self._full(run_id) is not None

    def is_paged(self, run_id: str) -> bool:
        """Whether it is here with an adapter, to come and go as there is room; what trains all weights has its seat."""
        return run_id in self._runs

    def run(self, run_id: str) -> RunState:
        """One with an adapter. Raises RunNotFound."""
        if run_id not in self._runs:
            raise RunNotFound(run_id)
        return self._runs[run_id]

    # ------------------------------------------------------------------------------------------------ training
    def forward_backward(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Runs all batches, of whatever runs, packed together. Results in order; a bad batch gets its error instead.

        A batch's gradient is added to its run's only if the whole batch is finite; no batch affects another. A datum
        that memory cannot hold is its batch's error: DatumTooLarge, or MemoryRanOut.
        """
        room = self._room()
        results: list[BatchResult | CallerError | None] = [self._problem(batch, room) for batch in batches]
        self._places = self._padding = 0
        for number, batch in enumerate(batches):
            if results[number] is None and self.is_full(batch.run_id):
                (results[number],) = self._run_pack([batch])
        for forward_only in (True, False):
            chosen = [n for n, each in enumerate(batches) if results[n] is None and each.forward_only is forward_only]
            portions = [self.memory.portion(self._member(batches[n])) for n in chosen]
            for pack in packing.packs(portions, self._pack_tokens, room):
                numbers = [chosen[at] for at in pack]
                for number, result in zip(numbers, self._run_pack([batches[n] for n in numbers]), strict=True):
                    results[number] = result
        return [result for result in results if result is not None]

    @property
    def padding_share(self) -> float:
        """The padding in what the last forward_backward ran, 0 to 1."""
        return self._padding / self._places if self._places else 0.0

    def optim_step(self, run_id: str, params: AdamParams) -> dict[str, float]:
        """One AdamW step with the gradient gathered so far. Raises GradientNotFinite, RunNotFound; see `adam.step`."""
        full = self._full(run_id)
        return adam.step(self.run(run_id), params) if full is None else full.optim_step(params)

    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]]) -> list[fused_adam.Outcome]:
        """`optim_step` of several runs in one go, each named once. Metrics in order, or the run's own error, EngineBusy
        where memory ended before anything of the run had changed."""
        there = {run_id: (self._runs[run_id], params) for run_id, params in asked if run_id in self._runs}
        outcomes = dict(zip(there, fused_adam.steps(list(there.values())), strict=True))
        outcomes |= {run_id: self._full_step(run_id, params) for run_id, params in asked if self.is_full(run_id)}
        return [outcomes.get(run_id) or RunNotFound(run_id) for run_id, _ in asked]

    # ------------------------------------------------------------------------------------------------ files
    def policy(self, run_id: str) -> dict[str, bytes]:
        """What is sampled: the adapter alone as PEFT files by name, or all weights as a Hugging Face folder."""
        full = self._full(run_id)
        if full is not None:
            return full.policy()
        run = self.run(run_id)
        return to_files(run.shape, run.weights, self._name)

    def adapter(self, run_id: str) -> tuple[LoraShape, Tensor] | None:
        """What `policy` writes of a run with an adapter, where it lies: float32 [shape.size], the run's own and only
        valid until it trains on. None for all weights."""
        if self.is_full(run_id):
            return None
        run = self.run(run_id)
        return run.shape, run.weights

    def checkpoint(self, run_id: str) -> dict[str, bytes]:
        """The same in float32 and the optimizer, from which `load` goes on; a pending gradient is not in them."""
        full = self._full(run_id)
        return checkpoint_files.write(self.run(run_id), self._name) if full is None else full.checkpoint()

    def snapshot(self, run_id: str) -> dict[str, memoryview]:
        """All of a run, its pending gradient too, from which `restored` goes on exactly, or `Seat.restore` where it
        trains all weights."""
        full = self._full(run_id)
        return snapshot_file.write(self.run(run_id)) if full is None else full.snapshot()

    # ------------------------------------------------------------------------------------------------ inside
    def _problem(self, batch: Batch, room: int) -> CallerError | None:
        try:
            self._learning(batch.run_id)
            check(batch, vocab_size=self.base.vocab_size, context_length=self.base.context_length)
        except CallerError as error:
            return error
        return self.memory.problem(self._member(batch), room, self._least)

    def _member(self, batch: Batch) -> Member:
        return batch, self._learning(batch.run_id).shape

    def _full(self, run_id: str) -> FullRun | None:
        return None if self.seat is None else self.seat.run(run_id)

    def _full_seat(self) -> Seat:
        if self.seat is None:
            raise FullRunsOff
        return self.seat

    def _full_step(self, run_id: str, params: AdamParams) -> dict[str, float] | CallerError:
        try:
            return self.optim_step(run_id, params)
        except CallerError as error:
            return error

    def _learning(self, run_id: str) -> RunState | FullRun:
        """Raises RunNotFound."""
        return self._full(run_id) or self.run(run_id)

    def _pack(self, batches: Sequence[Batch]) -> Pack:
        """Of several runs with adapters, or of one batch of a run of all weights."""
        train = not batches[0].forward_only
        full = self._full(batches[0].run_id)
        if full is not None:
            return Pack(full.model, batches, WholeModel(full, train=train), train=train)
        runs = [self.run(batch.run_id) for batch in batches]
        return Pack(self.base, batches, Adapters(runs, self.base.unembed.name, train=train), train=train)

    def _run_pack(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Batches that are either all forward only or all not, as `_pack` takes them."""
        try:
            pack = self._pack(batches)
        except Exception as error:
            if self._sharing is not None or not ran_out(error):
                raise
            pack = None  # not even gradients found room; tried again out of reach of the failure's frames
        if pack is None:
            return self._in_halves(batches)
        with closing(pack):
            lost = self._finish(pack, [self._member(batch) for batch in batches])
            self._places += pack.places
            self._padding += pack.padding
            return [
                self.memory.ran_out(self._member(batch), lost[number].place)
                if number in lost
                else self._settle(pack, number, batch)
                for number, batch in enumerate(batches)
            ]

    def _room(self) -> int:
        """Bytes for a pack; the least that any process has."""
        return self._least(self.memory.budget.room())

    def _least(self, mine: int) -> int:
        return mine if self._sharing is None else self._sharing.room(mine)

    def _finish(self, pack: Pack, members: Sequence[Member]) -> dict[int, Row]:
        """Runs all passes. By batch: the row that memory does not hold; such a batch is unfinished."""
        if self._sharing is None:
            return Course(self.memory, pack, members, self._pack_tokens).finish()
        self._sharing.finish(pack, self._pack_tokens, self.memory.holds(members, self._room()))
        return {}

    def _in_halves(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """A pack whose gradients alone ran out of memory."""
        members = [self._member(batch) for batch in batches]
        self.memory.relieve(sum(kept_bytes(each) for each in members))
        middle = len(batches) // 2
        if not middle:
            return [self.memory.ran_out(members[0], batches[0].longest)]
        return self._run_pack(batches[:middle]) + self._run_pack(batches[middle:])

    def _settle(self, pack: Pack, number: int, batch: Batch) -> BatchResult | CallerError:
        if not pack.train:
            return _result(pack, number)
        gradient = pack.gradient(number)
        if gradient is None:
            return GradientNotFinite("forward_backward")
        self._learning(batch.run_id).add_grad(gradient)
        return _result(pack, number)


def _result(pack: Pack, number: int) -> BatchResult:
    logprobs = tuple(each for each in pack.logprobs[number] if each is not None)
    return BatchResult(logprobs=logprobs, metrics=metrics_of(pack.sums[number]))
