"""Doubles for tests and benches of everything around the engines.

`ToyWorker` answers ops by arithmetic on their tokens: the shapes are those of the real engines, the numbers can be
worked out by hand, and nothing has to be loaded.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from openrl.catalog.repository import Catalog
from openrl.depot.port import Depot
from openrl.domain.checkpoint import Checkpoint, CheckpointPath
from openrl.domain.errors import ClaimLost, PassingError
from openrl.domain.ids import OpId, RunId
from openrl.domain.judge import Answers, AskJudge, Judged
from openrl.domain.losses import TARGETS
from openrl.domain.model import ModelCard
from openrl.domain.op import (
    Bell,
    CreateRun,
    ForwardBackward,
    LoadWeights,
    Op,
    OptimStep,
    RewardOp,
    Sample,
    SampleOp,
    SavePolicy,
    SaveWeights,
    ScoreTexts,
    TrainOp,
)
from openrl.domain.outcome import (
    BatchResult,
    Result,
    RunCreated,
    Sampled,
    Scores,
    StepResult,
    WeightsLoaded,
    WeightsSaved,
    failure_of,
)
from openrl.domain.rollout import Dropped, Grade, Graded, RolledOut, RollOut, ScoreGroup
from openrl.domain.sampling import SampleResult, Sequence, StopReason, TopLogprobs
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.port import Ledger

TOY_CARD = ModelCard(
    name="toy",
    aliases=("openrl/toy",),
    tokenizer_id="toy",
    architecture="Toy",
    vocab_size=100,
    context_length=64,
    max_lora_rank=32,
    full_runs=True,
)

Array = npt.NDArray[Any]


def toy_logprobs(tokens: Array) -> Array:
    """The log-probability of each token: -0.1 for token 0, and 0.1 less for each token up to 9, then from the start."""
    return (-0.1 * (1 + tokens % 10)).astype("<f4")


class ToyWorker:
    """Works on one op at a time, in a thread.

    `before` sees each op first: it may sleep, or raise what the op is to fail with. `seen` are the ops in the order in
    which they were claimed. A bell that it does not hear is lost, as one for another model is."""

    def __init__(self, before: Callable[[Op], None] = lambda op: None) -> None:
        self.before = before
        self.hears: Callable[[Bell], bool] = lambda bell: True
        self.seen: list[Op] = []
        self._bells: SimpleQueue[OpId | None] = SimpleQueue()
        self._steps: dict[RunId, int] = {}
        self._thread: Thread | None = None

    def ring(self, bell: Bell) -> None:
        if self.hears(bell):
            self._bells.put(bell.op)

    def start(self, ledger: Ledger, catalog: Catalog, depot: Depot) -> None:
        self._ledger, self._catalog, self._depot = ledger, catalog, depot
        self._thread = Thread(target=self._run, name="toy-worker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._bells.put(None)
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while (op_id := self._bells.get()) is not None:
            self._serve(op_id)

    def _serve(self, op_id: OpId) -> None:
        held = self._ledger.claim(op_id)
        if held is None:
            return
        self.seen.append(held.op)
        try:
            self.before(held.op)
            self._ledger.done(held, self.answer(held.op))
        except ClaimLost:
            return  # cancelled meanwhile
        except PassingError as error:
            self._ledger.give_back(held, error)
        except Exception as error:
            self._ledger.failed(held, failure_of(error))

    def answer(self, op: Op) -> Result:
        match op:
            case TrainOp():
                return self._train(op)
            case SampleOp():
                return self._sample(op.action)
            case RewardOp():
                return self._score(op.action)

    def _sample(self, action: Sample | RollOut | AskJudge) -> Result:
        match action:
            case RollOut():
                return toy_rollout(action)
            case AskJudge():
                return toy_judged(action, self._texts(action.of))
            case Sample():
                return Sampled(result=toy_sample(action))

    def _texts(self, rollout: OpId) -> tuple[str, ...]:
        sampled = self._ledger.read(rollout)
        assert sampled is not None and isinstance(sampled.result, RolledOut)
        return sampled.result.texts

    def _score(self, action: ScoreTexts | ScoreGroup) -> Scores | Graded:
        """A text's score is its length."""
        if isinstance(action, ScoreTexts):
            return Scores(values=tuple(float(len(text)) for text in action.texts))
        sampled = self._ledger.read(action.of)
        assert sampled is not None
        if not isinstance(sampled.result, RolledOut):
            assert sampled.failure is not None
            reason = {"error": sampled.failure.error, "reason": sampled.failure.message}
            lost = tuple(Dropped(sample=sample, **reason) for sample in range(action.samples))
            return Graded(grades=(), dropped=lost, scored_seconds=0.0)
        return toy_grades(action, sampled.result.texts)

    def _train(self, op: TrainOp) -> Result:
        match op.action:
            case CreateRun():
                return RunCreated(run=op.run)
            case LoadWeights():
                assert self._depot.has_folder(op.action.source)
                return WeightsLoaded(run=op.run, path=op.action.path)
            case ForwardBackward():
                return toy_batch(op.action)
            case OptimStep():
                self._steps[op.run] = self._steps.get(op.run, 0) + 1
                return StepResult(metrics={"step": float(self._steps[op.run])})
            case SaveWeights() | SavePolicy():
                return self._save(op, op.action)

    def _save(self, op: TrainOp, action: SaveWeights | SavePolicy) -> WeightsSaved:
        standing = self._depot.put_folder(action.target, {"adapter.bin": b"toy weights"})
        if action.path is not None:
            now = datetime.now(UTC)
            checkpoint = Checkpoint(
                path=CheckpointPath.parse(action.path),
                tenant=op.tenant,
                key=action.target,
                op=op.id,
                size_bytes=standing.size_bytes,
                created_at=now,
                has_optimizer=isinstance(action, SaveWeights),
                expires_at=now + timedelta(seconds=action.ttl_seconds) if action.ttl_seconds else None,
                user_metadata=action.user_metadata,
            )
            replaced = self._catalog.publish_checkpoint(checkpoint, overwrite=action.overwrite)
            if replaced is not None:
                self._ledger.retire(replaced, None)
        return WeightsSaved(path=action.path, sampler=getattr(action, "sampler", None))


def toy_batch(action: ForwardBackward) -> BatchResult:
    """`loss:sum` is the cross-entropy of the targets, each weighted by `weights`, or by 1 where a datum has none."""
    logprobs, loss = [], 0.0
    for datum in action.data:
        scored = toy_logprobs(_array(datum.inputs[TARGETS]))
        weights = datum.inputs.get("weights")
        loss -= float((scored * (1.0 if weights is None else _array(weights))).sum())
        logprobs.append(_tensor(scored))
    return BatchResult(logprobs=tuple(logprobs), metrics={"loss:sum": loss})


def toy_sample(action: Sample) -> SampleResult:
    """Sample s continues with the last prompt token plus s + 1, s + 2, …, modulo the toy vocabulary."""
    prompt = _array(action.prompt)
    targets = action.target_prompt_logprobs
    return SampleResult(
        sequences=tuple(_sequence(action, int(prompt[-1]) + number) for number in range(action.num_samples)),
        prompt_logprobs=_prompt_logprobs(action, prompt) if action.prompt_logprobs else None,
        top_prompt_logprobs=_top(prompt.size, action.topk_prompt_logprobs),
        target_prompt_logprobs=None if targets is None else _tensor(_target_logprobs(_array(targets))),
        prompt_alternatives=_alternatives(prompt, action.prompt_alternatives),
    )


def toy_rollout(action: RollOut) -> RolledOut:
    """A prompt's tokens are its bytes, modulo the toy vocabulary; a text is the numbers of its tokens."""
    said = action.text or "".join(message.content for message in action.messages)
    prompt = action.tokens or _tensor(np.frombuffer(said.encode(), "u1").astype("<i4") % TOY_CARD.vocab_size)
    sample = Sample(
        base_model=action.base_model,
        policy=action.policy,
        prompt=prompt,
        num_samples=action.num_samples,
        params=action.params,
    )
    sequences = toy_sample(sample).sequences
    texts = tuple(" ".join(map(str, _array(sequence.tokens))) for sequence in sequences)
    return RolledOut(prompt=prompt, sequences=sequences, texts=texts, queued_seconds=0.0, sampled_seconds=0.0)


def toy_judged(action: AskJudge, texts: tuple[str, ...]) -> Judged:
    """Each answer is the question."""
    pieces = action.text or action.messages[-1].pieces
    answers = (Answers(sample=at, texts=(text.join(pieces),) * action.answers) for at, text in enumerate(texts))
    return Judged(answers=tuple(answers), dropped=())


def toy_grades(action: ScoreGroup, texts: tuple[str, ...]) -> Graded:
    grades = []
    for sample, text in enumerate(texts):
        parts = {reward.name: float(len(text)) for reward in action.rewards}
        total = sum(reward.weight * parts[reward.name] for reward in action.rewards)
        grades.append(Grade(sample=sample, reward=total, parts=parts))
    return Graded(grades=tuple(grades), dropped=(), scored_seconds=0.0)


def _sequence(action: Sample, start: int) -> Sequence:
    tokens = (start + 1 + np.arange(action.params.max_tokens, dtype="<i4")) % TOY_CARD.vocab_size
    stops = np.flatnonzero(np.isin(tokens, action.params.stop_tokens))
    if stops.size:
        tokens = tokens[: stops[0] + 1]
    return Sequence(
        tokens=_tensor(tokens.astype("<i4")),
        logprobs=_tensor(toy_logprobs(tokens)),
        stop_reason=StopReason.STOP if stops.size else StopReason.LENGTH,
        top_logprobs=_top(tokens.size, action.topk_sample_logprobs),
    )


def _prompt_logprobs(action: Sample, prompt: Array) -> Tensor:
    logprobs = toy_logprobs(prompt)
    logprobs[0 if action.prompt_logprobs_last_n is None else slice(0, -action.prompt_logprobs_last_n)] = np.nan
    return _tensor(logprobs)


def _target_logprobs(targets: Array) -> Array:
    return np.where(targets < 0, np.float32(0), toy_logprobs(targets)).astype("<f4")


def _top(length: int, k: int) -> TopLogprobs | None:
    if k == 0:
        return None
    ids = np.tile(np.arange(k, dtype="<i4"), (length, 1))
    return TopLogprobs(token_ids=_tensor(ids), logprobs=_tensor(toy_logprobs(ids)))


def _alternatives(prompt: Array, k: int) -> tuple[Tensor, Tensor] | None:
    if k == 0:
        return None
    ids = np.tile(np.arange(k, dtype="<i8"), (prompt.size - 1, 1))
    return _tensor(ids), _tensor(toy_logprobs(ids))


def _array(tensor: Tensor) -> Array:
    return np.frombuffer(tensor.data, np.dtype(tensor.dtype)).reshape(tensor.shape)


def _tensor(array: Array) -> Tensor:
    return Tensor(dtype=DType(array.dtype.name), shape=array.shape, data=array.tobytes())
