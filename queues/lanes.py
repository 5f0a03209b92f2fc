"""Names of queues and tasks: which op is rung where, and under which name people see it. Pure; knows no Celery."""

import hashlib
import re
from zlib import crc32

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
from openrl.domain.rollout import RollOut, ScoreGroup

TRAIN_TASKS = tuple(
    f"train.{action.kind}" for action in (CreateRun, LoadWeights, ForwardBackward, OptimStep, SaveWeights, SavePolicy)
)
SAMPLE_TASK = f"sample.{Sample.kind}"
REWARD_TASK = f"reward.{ScoreTexts.kind}"
REWARD_LINE = "reward"


def slug(model: str) -> str:
    """A queue-safe name of a base model: readable, and unique by a digest of the exact name."""
    readable = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[-40:]
    return f"{readable}-{hashlib.sha256(model.encode()).hexdigest()[:6]}"


def train_queue(model: str) -> str:
    return f"train.{slug(model)}"


def sample_line(model: str) -> str:
    """The line of all lanes of the model's samples."""
    return f"sample.{slug(model)}"


def sample_queues(model: str, lanes: int) -> list[str]:
    return [f"{sample_line(model)}.{lane}" for lane in range(lanes)]


def reward_queues(lanes: int) -> list[str]:
    return [f"{REWARD_LINE}.{lane}" for lane in range(lanes)]


def lane_of(owner: str, lanes: int) -> int:
    """The lane of whoever owns the work: always the same one, spread evenly over owners."""
    return crc32(owner.encode()) % lanes


def bell_of(op: Op, *, model: str, lanes: int, trace: str = "") -> Bell:
    """The bell that announces an op; `model` is the canonical name of its base model (empty for rewards)."""
    match op:
        case TrainOp():
            queue, task, line = train_queue(model), f"train.{op.action.kind}", ""
        case SampleOp():
            queue, task = sample_queues(model, lanes)[lane_of(op.sampler, lanes)], SAMPLE_TASK
            line = sample_line(model)
        case RewardOp():
            queue, task, line = reward_queues(lanes)[lane_of(op.owner or op.tenant, lanes)], REWARD_TASK, REWARD_LINE
    return Bell(op=op.id, queue=queue, task=task, summary=summary(op), line=line, trace=trace)


def summary(op: Op) -> str:
    """The op in a few words, for whoever watches the queues."""
    match op:
        case TrainOp():
            return " ".join([f"run={op.run}", f"turn={op.turn}", *_train_words(op)])
        case SampleOp(action=RollOut() as rollout):
            return (
                f"batch={op.sampler} group={rollout.number} samples={rollout.num_samples} "
                f"max_tokens={rollout.params.max_tokens}"
            )
        case SampleOp(action=Sample() as action):
            return (
                f"sampler={op.sampler} number={op.number} tokens={action.prompt.elements} "
                f"samples={action.num_samples} max_tokens={action.params.max_tokens}"
            )
        case RewardOp(action=ScoreGroup() as group):
            rewards = ",".join(reward.name for reward in group.rewards)
            return f"batch={op.batch} of={group.of} rewards={rewards} samples={group.samples}"
        case RewardOp(action=ScoreTexts() as action):
            return f"reward={action.reward} texts={len(action.texts)}"
    raise AssertionError(f"an op with {op.action.kind} has no summary")


def _train_words(op: TrainOp) -> list[str]:
    match op.action:
        case CreateRun():
            lora = op.action.lora
            return [f"model={op.action.base_model}", "all weights" if lora is None else f"rank={lora.rank}"]
        case ForwardBackward():
            tokens = sum(datum.length for datum in op.action.data)
            words = [f"tokens={tokens}", f"datums={len(op.action.data)}", f"loss={op.action.loss}"]
            return [*words, "forward_only"] if op.action.forward_only else words
        case OptimStep():
            return [f"lr={op.action.adam.learning_rate:g}"]
        case SaveWeights() | LoadWeights():
            return [f"path={op.action.path}"]
        case SavePolicy():
            return [f"path={op.action.path}" if op.action.path else f"sampler={op.action.sampler}"]
