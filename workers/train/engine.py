"""The train engine: Tinker's verbs over tensors for many runs on one base model.

It knows no ops, HTTP, brokers or settings. One thread calls it at a time.
"""

from collections.abc import Mapping, Sequence

from openrl.domain.errors import CallerError, GradientNotFinite, RunNotFound
from openrl.domain.full_run_errors import FullRunsOff
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.adapter_files import to_files
from workers.model.base import BaseModel
from workers.model.model_files import holds_model
from workers.train import adam, checkpoint_files, packing
from workers.train.batch import Batch, check
from workers.train.full import FullRun
from workers.train.learners import Adapters
from workers.train.objective import metrics_of
from workers.train.pack import Pack
from workers.train.run_state import RunState
from workers.train.seat import Seat
from workers.train.whole_model import WholeModel

__all__ = ["Batch", "TrainEngine"]


class TrainEngine:
    """Runs by id, each one adapter with its optimizer (or all weights of a model), and the passes that train them."""

    def __init__(
        self,
        base: BaseModel,
        *,
        name: str = "",
        pack_tokens: int = 16_384,
        recompute_tokens: int = 8_192,
        seat: Seat | None = None,
    ) -> None:
        """`name` is the base model's in saved files. A pass holds up to `pack_tokens` tokens, padding included; above
        `recompute_tokens` it gives up a third of its speed for a fraction of the memory. `seat` is where a run of all
        weights may be; None takes none."""
        self.base = base
        self._name, self._pack_tokens, self._recompute_tokens = name, pack_tokens, recompute_tokens
        self._runs: dict[str, RunState] = {}
        self.seat = seat

    # ------------------------------------------------------------------------------------------------ runs
    def create(self, run_id: str, lora: LoraSpec | None) -> None:
        """A new run with a fresh adapter, or of all weights where `lora` is None; one of that id is replaced. Raises
        FieldInvalid for an impossible spec; FullRunsOff, FullRunTaken, FullRunWontFit."""
        if lora is None:
            self._full_seat().create(run_id)
        else:
            self._runs[run_id] = RunState.fresh(self.base.layout, lora, self.base.device)

    def load(self, run_id: str, files: Mapping[str, bytes], *, with_optimizer: bool) -> None:
        """A run with the weights in `files` (PEFT's format, or a Hugging Face folder for a run of all weights), and
        with the optimizer's moments if asked for.

        A run of that id is replaced, its gradient dropped. Raises AdapterUnsupported, WeightsUnsupported, and what
        `create` raises.
        """
        if holds_model(files):
            self._full_seat().load(run_id, files, with_optimizer=with_optimizer)
        else:
            run = checkpoint_files.read(self.base.layout, files, with_optimizer=with_optimizer)
            self._runs[run_id] = run.to(self.base.device)

    def drop(self, run_id: str) -> None:
        """Forgets a run, if it is there."""
        self._runs.pop(run_id, None)
        if self.seat is not None:
            self.seat.drop(run_id)

    def has(self, run_id: str) -> bool:
        return run_id in self._runs or self.is_full(run_id)

    def is_full(self, run_id: str) -> bool:
        """Whether it is here and trains all weights. Any thread."""
        return self._full(run_id) is not None

    def run(self, run_id: str) -> RunState:
        """One with an adapter. Raises RunNotFound."""
        if run_id not in self._runs:
            raise RunNotFound(run_id)
        return self._runs[run_id]

    # ------------------------------------------------------------------------------------------------ training
    def forward_backward(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Runs all batches, of whatever runs, packed together. Results in order; a bad batch gets its error instead.

        A batch's gradient is added to its run's only if the whole batch is finite; no batch affects another.
        """
        results: list[BatchResult | CallerError | None] = [self._problem(batch) for batch in batches]
        for number, batch in enumerate(batches):
            if results[number] is None and (full := self._full(batch.run_id)) is not None:
                results[number] = self._run_full(batch, full)
        for forward_only in (True, False):
            chosen = [n for n, each in enumerate(batches) if results[n] is None and each.forward_only is forward_only]
            for pack in packing.packs([batches[n].tokens for n in chosen], self._pack_tokens):
                numbers = [chosen[at] for at in pack]
                for number, result in zip(numbers, self._run_pack([batches[n] for n in numbers]), strict=True):
                    results[number] = result
        return [result for result in results if result is not None]

    def optim_step(self, run_id: str, params: AdamParams) -> dict[str, float]:
        """One AdamW step with the gradient gathered so far. Raises GradientNotFinite, RunNotFound; see `adam.step`."""
        full = self._full(run_id)
        return adam.step(self.run(run_id), params) if full is None else full.optim_step(params)

    # ------------------------------------------------------------------------------------------------ files
    def policy(self, run_id: str) -> dict[str, bytes]:
        """What is sampled: the adapter alone as PEFT files by name, or all weights as a Hugging Face folder."""
        full = self._full(run_id)
        if full is not None:
            return full.policy()
        run = self.run(run_id)
        return to_files(run.shape, run.weights, self._name)

    def checkpoint(self, run_id: str, *, with_gradient: bool = False) -> dict[str, bytes]:
        """The same in float32 and the optimizer, from which `load` goes on exactly; the pending gradient too if asked
        for."""
        full = self._full(run_id)
        if full is not None:
            return full.checkpoint(with_gradient=with_gradient)
        return checkpoint_files.write(self.run(run_id), self._name, with_gradient=with_gradient)

    # ------------------------------------------------------------------------------------------------ inside
    def _problem(self, batch: Batch) -> CallerError | None:
        try:
            if not self.is_full(batch.run_id):
                self.run(batch.run_id)
            check(batch, vocab_size=self.base.vocab_size, context_length=self.base.context_length)
        except CallerError as error:
            return error
        return None

    def _full(self, run_id: str) -> FullRun | None:
        return None if self.seat is None else self.seat.run(run_id)

    def _full_seat(self) -> Seat:
        if self.seat is None:
            raise FullRunsOff
        return self.seat

    def _run_pack(self, batches: Sequence[Batch]) -> list[BatchResult | CallerError]:
        """Batches of adapters that are either all forward only or all not."""
        train = not batches[0].forward_only
        runs = [self.run(batch.run_id) for batch in batches]
        learners = Adapters(runs, self.base.unembed.name, train=train)
        pack = Pack(self.base, batches, learners, train=train, recompute_tokens=self._recompute_tokens)
        for one in pack.passes(self._pack_tokens):
            pack.run(one)
        if not train:
            return [_result(pack, number) for number in range(len(batches))]
        return [_settle(pack, number, run) for number, run in enumerate(runs)]

    def _run_full(self, batch: Batch, run: FullRun) -> BatchResult | CallerError:
        train = not batch.forward_only
        learner = WholeModel(run, train=train)
        pack = Pack(run.model, [batch], learner, train=train, recompute_tokens=self._recompute_tokens)
        for one in pack.passes(self._pack_tokens):
            pack.run(one)
        return _settle(pack, 0, run) if train else _result(pack, 0)


def _settle(pack: Pack, number: int, run: RunState | FullRun) -> BatchResult | CallerError:
    gradient = pack.gradient(number)
    if gradient is None:
        return GradientNotFinite("forward_backward")
    run.add_grad(gradient)
    return _result(pack, number)


def _result(pack: Pack, number: int) -> BatchResult:
    logprobs = tuple(each for each in pack.logprobs[number] if each is not None)
    return BatchResult(logprobs=logprobs, metrics=metrics_of(pack.sums[number]))
