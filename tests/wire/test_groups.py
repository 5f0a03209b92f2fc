"""What a batch tells of a group, where something of it is lost too."""

import math

import pytest

from openrl.domain.errors import BytesLost, OpCancelled
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import Status
from openrl.domain.outcome import Record, Result, failure_of
from openrl.domain.rollout import Dropped, Grade, Graded, RolledOut
from openrl.domain.sampling import Sequence, StopReason
from openrl.domain.tensor import DType, Tensor
from openrl.wire.groups import dropped_by_reason, group_fields, reward_fields

INTS = Tensor(dtype=DType.INT32, shape=(2,), data=bytes([1, 0, 0, 0, 2, 0, 0, 0]))
FLOATS = Tensor(dtype=DType.FLOAT32, shape=(2,), data=bytes(8))
SEQUENCE = Sequence(tokens=INTS, logprobs=FLOATS, stop_reason=StopReason.LENGTH)
ROLLED = RolledOut(prompt=INTS, sequences=(SEQUENCE,) * 2, texts=("a", "b"), queued_seconds=0.5, sampled_seconds=1.5)
GRADED = Graded(
    grades=(Grade(sample=1, reward=0.5),),
    dropped=(Dropped(sample=0, error="GraderFailed", reason="slow"),),
    scored_seconds=0.25,
)


def record(result: Result | None = None, error: Exception | None = None) -> Record:
    return Record(
        id=OpId("o"),
        tenant=TenantId("t"),
        kind="k",
        status=Status.FAILED if result is None else Status.DONE,
        attempts=1,
        result=result,
        failure=None if error is None else failure_of(error),
        label="p",
    )


def test_rollouts_are_told_by_their_own_numbers() -> None:
    fields = group_fields(3, 2, "policy", record(ROLLED), record(GRADED))
    (rollout,) = fields["rollouts"]
    assert (rollout["sample"], rollout["text"], rollout["reward"]) == (1, "b", 0.5)
    assert rollout["tokens"].tolist() == [1, 2] and fields["prompt_tokens"].tolist() == [1, 2]
    assert fields["dropped"] == [{"sample": 0, "error": "GraderFailed", "reason": "slow"}]
    assert fields["timings"] == {"queued_seconds": 0.5, "sampled_seconds": 1.5, "scored_seconds": 0.25}


@pytest.mark.parametrize("sampled", [record(error=BytesLost("ops/o/result-1")), None])
def test_scores_of_texts_that_are_gone_are_no_rollouts(sampled: Record | None) -> None:
    fields = group_fields(0, 2, "policy", sampled, record(GRADED))
    assert fields["rollouts"] == [] and [each["sample"] for each in fields["dropped"]] == [0, 1]
    assert {each["error"] for each in fields["dropped"]} == {"BytesLost"}


def test_a_group_that_ended_without_scores_is_dropped_whole() -> None:
    fields = group_fields(0, 2, "policy", record(ROLLED), record(error=OpCancelled()))
    assert fields["rollouts"] == [] and [each["error"] for each in fields["dropped"]] == ["OpCancelled"] * 2


def test_rewards_of_nothing_are_unknown() -> None:
    assert reward_fields({}) == {"mean": None, "std": None, "min": None, "max": None, "parts": {}}


def test_equal_rewards_do_not_spread() -> None:
    third = 1 / 3
    sums = {"done": 3.0, "sum": 3 * third, "squares": 3 * third * third - 1e-17, "min": third, "max": third}
    assert reward_fields(sums)["std"] == pytest.approx(0.0, abs=1e-7) and not math.isnan(reward_fields(sums)["std"])


def test_losses_are_counted_in_rollouts() -> None:
    lost = dropped_by_reason({"dropped:A": 2.0, "done": 1.0}, {"A": 1, "B": 2}, group_size=4)
    assert lost == {"A": 6, "B": 8}
