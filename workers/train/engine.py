"""The train engine: Tinker's verbs over tensors for many runs on one base model.

It knows no ops, HTTP, brokers or settings. One thread calls it at a time.
"""

from collections.abc import Mapping, Sequence

from openrl.domain.errors import CallerError, GradientNotFinite, RunNotFound
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.adapter_files import to_files
from workers.model.allocation import ran_out
from workers.model.base import BaseModel
from workers.train import adam, checkpoint_files, packing
from workers.train.batch import Batch, check
from workers.train.course import Course
from workers.train.memory import Member, Memory, kept_bytes
from workers.train.objective import metrics_of
from workers.train.pack import Pack
from workers.train.run_state import RunState

__all__ = ["Batch", "TrainEngine"]


class TrainEngine:
    """Runs by id, each one adapter with its optimizer, and the passes that train them."""

    def __init__(
        self, base: BaseModel, *, name: str = "", pack_tokens: int = 16_384, memory_bytes: int | None = None
    ) -> None:
        """`name` is the base model's in saved files. A pass holds up to `pack_tokens` tokens, padding included, and
        takes up to `memory_bytes`; None looks how much is free."""
        self.base = base
        self.memory = Memory(base, memory_bytes)
        self._name, self._pack_tokens = name, pack_tokens
        self._runs: dict[str, RunState] = {}

    # ------------------------------------------------------------------------------------------------ runs
    def create(self, run_id: str, lora: LoraSpec) -> None:
        """A new run with a fresh adapter; one of that id is replaced. Raises FieldInvalid for an impossible spec."""
        self._runs[run_id] = RunState.fresh(self.base.layout, lora, self.base.device)

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """A run with the weights in `files` (PEFT's format), and with the optimizer's moments if asked for.

        A run of that id is replaced, its gradient dropped. Raises AdapterUnsupported.
        """
        run = checkpoint_files.read(self.base.layout, files, with_optimizer=with_optimizer)
        self._runs[run_id] = run.to(self.base.device)

    def drop(self, run_id: str) -> None:
        """Forgets a run, if it is there."""
        self._runs.pop(run_id, None)

    def has(self, run_id: str) -> bool:
        return run_id in self._runs

    def run(self, run_id: str) -> RunState:
        """Raises RunNotFound."""
        if run_id not in self._runs:
            raise RunNotFound(run_id)
        return self._runs[run_id]

    # ------------------------------------------------------------------------------------------------ training
    def forward_backward(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Runs all batches, of whatever runs, packed together. Results in order; a bad batch gets its error instead.

        A batch's gradient is added to its run's only if the whole batch is finite; no batch affects another. A datum
        that memory cannot hold is its batch's error: DatumTooLarge, or MemoryRanOut.
        """
        room = self.memory.budget.room()
        results: list[BatchResult | CallerError | None] = [self._problem(batch, room) for batch in batches]
        for forward_only in (True, False):
            chosen = [n for n, each in enumerate(batches) if results[n] is None and each.forward_only is forward_only]
            portions = [self.memory.portion(self._member(batches[n])) for n in chosen]
            for pack in packing.packs(portions, self._pack_tokens, room):
                numbers = [chosen[at] for at in pack]
                for number, result in zip(numbers, self._run_pack([batches[n] for n in numbers]), strict=True):
                    results[number] = result
        return [result for result in results if result is not None]

    def optim_step(self, run_id: str, params: AdamParams) -> dict[str, float]:
        """One AdamW step with the gradient gathered so far. Raises GradientNotFinite, RunNotFound; see `adam.step`."""
        return adam.step(self.run(run_id), params)

    # ------------------------------------------------------------------------------------------------ files
    def adapter(self, run_id: str) -> dict[str, bytes]:
        """The adapter alone, as PEFT files by name."""
        run = self.run(run_id)
        return to_files(run.shape, run.weights, self._name)

    def checkpoint(self, run_id: str, *, with_gradient: bool = False) -> dict[str, bytes]:
        """PEFT files and the optimizer, from which `load` goes on exactly; the pending gradient too if asked for."""
        return checkpoint_files.write(self.run(run_id), self._name, with_gradient=with_gradient)

    # ------------------------------------------------------------------------------------------------ inside
    def _problem(self, batch: Batch, room: int) -> CallerError | None:
        try:
            self.run(batch.run_id)
            check(batch, vocab_size=self.base.vocab_size, context_length=self.base.context_length)
        except CallerError as error:
            return error
        return self.memory.problem(self._member(batch), room)

    def _member(self, batch: Batch) -> Member:
        return batch, self.run(batch.run_id).shape

    def _run_pack(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Batches that are either all forward only or all not."""
        train = not batches[0].forward_only
        members = [(batch, self.run(batch.run_id)) for batch in batches]
        try:
            pack = Pack(self.base, members, train=train)
        except Exception as error:
            if not ran_out(error):
                raise
            pack = None  # not even gradients found room; tried again out of reach of the failure's frames
        if pack is None:
            return self._in_halves(batches)
        lost = Course(self.memory, pack, [self._member(batch) for batch in batches], self._pack_tokens).finish()
        results: list[BatchResult | CallerError] = []
        for number, (batch, run) in enumerate(members):
            if number in lost:
                results.append(self.memory.ran_out(self._member(batch), lost[number].place))
            else:
                results.append(self._settle(pack, number, run) if train else _result(pack, number))
        return results

    def _in_halves(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """A pack whose gradients alone ran out of memory."""
        members = [self._member(batch) for batch in batches]
        self.memory.relieve(sum(kept_bytes(each) for each in members))
        middle = len(batches) // 2
        if not middle:
            return [self.memory.ran_out(members[0], batches[0].longest)]
        return self._run_pack(batches[:middle]) + self._run_pack(batches[middle:])

    def _settle(self, pack: Pack, number: int, run: RunState) -> BatchResult | CallerError:
        gradient = pack.gradient(number)
        if gradient is None:
            return GradientNotFinite("forward_backward")
        run.add_grad(gradient)
        return _result(pack, number)


def _result(pack: Pack, number: int) -> BatchResult:
    logprobs = tuple(each for each in pack.logprobs[number] if each is not None)
    return BatchResult(logprobs=logprobs, metrics=metrics_of(pack.sums[number]))
