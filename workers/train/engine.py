"""The train engine: Tinker's verbs over tensors for many runs on one base model.

It knows no ops, HTTP, brokers or settings. One thread calls at a time what runs the model; what a run owns may be put,
moved and read by any thread while no call is at work on that run.
"""

from collections.abc import Callable, Mapping, Sequence

from openrl.domain.errors import CallerError, GradientNotFinite, RunNotFound
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.adapter_files import to_files
from workers.model.base import BaseModel
from workers.train import adam, checkpoint_files, fused_adam, packing, snapshot_file
from workers.train.batch import Batch, check
from workers.train.ferry import Ferry, pinned_bytes
from workers.train.objective import metrics_of
from workers.train.pack import Pack
from workers.train.run_state import RunState

__all__ = ["Batch", "TrainEngine"]


class TrainEngine:
    """Runs by id, each one adapter with its optimizer, and the passes that train them."""

    def __init__(
        self,
        base: BaseModel,
        *,
        name: str = "",
        pack_tokens: int = 16_384,
        recompute_tokens: int = 8_192,
        carry_out: Callable[[Pack, int], None] | None = None,
    ) -> None:
        """`name` is the base model's in saved files. A pass holds up to `pack_tokens` tokens, padding included; above
        `recompute_tokens` it gives up a third of its speed for a fraction of the memory. `carry_out` runs all passes
        of a pack, of at most so many tokens; without it they are run here, one after another."""
        self.base = base
        self._carry_out = carry_out or _alone
        self._name, self._pack_tokens, self._recompute_tokens = name, pack_tokens, recompute_tokens
        self.ferry = Ferry(base.device)
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

    def create(self, run_id: str, lora: LoraSpec) -> None:
        """A new run with a fresh adapter."""
        self.put(run_id, self.fresh(lora))

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """A run with the weights in `files` (PEFT's format), and with the optimizer's moments if asked for; no
        gradient."""
        self.put(run_id, self.read(files, with_optimizer=with_optimizer))

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

        A batch's gradient is added to its run's only if the whole batch is finite; no batch affects another.
        """
        results: list[BatchResult | CallerError | None] = [self._problem(batch) for batch in batches]
        self._places = self._padding = 0
        for forward_only in (True, False):
            chosen = [n for n, each in enumerate(batches) if results[n] is None and each.forward_only is forward_only]
            for pack in packing.packs([batches[n].tokens for n in chosen], self._pack_tokens):
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
        return adam.step(self.run(run_id), params)

    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]]) -> list[dict[str, float] | CallerError]:
        """`optim_step` of several runs in one go, each named once. Metrics in order, or the run's own error."""
        there = {run_id: (self._runs[run_id], params) for run_id, params in asked if run_id in self._runs}
        outcomes = dict(zip(there, fused_adam.steps(list(there.values())), strict=True))
        return [outcomes.get(run_id) or RunNotFound(run_id) for run_id, _ in asked]

    # ------------------------------------------------------------------------------------------------ files
    def adapter(self, run_id: str) -> dict[str, bytes]:
        """The adapter alone, as PEFT files by name."""
        run = self.run(run_id)
        return to_files(run.shape, run.weights, self._name)

    def checkpoint(self, run_id: str) -> dict[str, bytes]:
        """PEFT files and the optimizer, from which `load` goes on; a pending gradient is not in them."""
        return checkpoint_files.write(self.run(run_id), self._name)

    def snapshot(self, run_id: str) -> dict[str, memoryview]:
        """All of a run, its pending gradient too, from which `restored` goes on exactly."""
        return snapshot_file.write(self.run(run_id))

    # ------------------------------------------------------------------------------------------------ inside
    def _problem(self, batch: Batch) -> CallerError | None:
        try:
            self.run(batch.run_id)
            check(batch, vocab_size=self.base.vocab_size, context_length=self.base.context_length)
        except CallerError as error:
            return error
        return None

    def _run_pack(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Batches that are either all forward only or all not."""
        train = not batches[0].forward_only
        members = [(batch, self.run(batch.run_id)) for batch in batches]
        pack = Pack(self.base, members, train=train, recompute_tokens=self._recompute_tokens)
        self._carry_out(pack, self._pack_tokens)
        self._places += pack.places
        self._padding += pack.padding
        if not train:
            return [_result(pack, number) for number in range(len(batches))]
        return [self._settle(pack, number, run) for number, (_, run) in enumerate(members)]

    def _settle(self, pack: Pack, number: int, run: RunState) -> BatchResult | CallerError:
        gradient = pack.gradient(number)
        if gradient is None:
            return GradientNotFinite("forward_backward")
        run.add_grad(gradient)
        return _result(pack, number)


def _alone(pack: Pack, pack_tokens: int) -> None:
    for one in pack.passes(pack_tokens):
        pack.run(one)


def _result(pack: Pack, number: int) -> BatchResult:
    logprobs = tuple(each for each in pack.logprobs[number] if each is not None)
    return BatchResult(logprobs=logprobs, metrics=metrics_of(pack.sums[number]))
