from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from openrl.domain.errors import CallerError, FieldInvalid
from openrl.domain.ids import TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from workers.device.answers import answer_call, answer_pack, answer_steps
from workers.device.waiting import BatchWaiting, CallWaiting, StepWaiting

ONE = TenantId("one")


@dataclass(frozen=True)
class Batch:
    run_id: str
    tokens: int = 10


class Engine:
    """Refuses what is named `bad` and breaks at what is named `broken`."""

    padding_share = 0.0

    def forward_backward(self, batches: Sequence[Batch], /) -> list[BatchResult | CallerError]:
        return [refused(each.run_id) or BatchResult(logprobs=(), metrics={}) for each in batches]

    def optim_steps(self, asked: Sequence[tuple[str, AdamParams]], /) -> list[dict[str, float] | CallerError]:
        return [refused(run) or {} for run, _ in asked]


def refused(run: str) -> CallerError | None:
    if run == "broken":
        raise ZeroDivisionError
    return FieldInvalid("data", "bad") if run == "bad" else None


def batches(*runs: str) -> list[BatchWaiting[Batch]]:
    return [BatchWaiting(Batch(run), ONE, 10, since=0.0) for run in runs]


def test_a_pack_that_was_carried_out_tells_its_time_and_every_batch_gets_a_receipt() -> None:
    items = batches("a", "b")
    seconds = answer_pack(Engine(), items)
    assert seconds is not None and seconds >= 0.0
    assert [item.future.result(0).metrics["pack_share:mean"] for item in items] == [0.5, 0.5]


def test_a_refused_batch_gets_its_error_the_others_their_results_and_the_time_tells_nothing() -> None:
    good, bad = batches("a", "bad")
    assert answer_pack(Engine(), [good, bad]) is None
    assert good.future.result(0).metrics["pack_batches:mean"] == 2.0
    assert isinstance(bad.future.exception(0), FieldInvalid)


def test_what_the_engine_raises_is_everybodys() -> None:
    packed, steps = batches("a", "broken"), [StepWaiting(run, AdamParams(), ONE, since=0.0) for run in ("a", "broken")]
    assert answer_pack(Engine(), packed) is None
    answer_steps(Engine(), steps)
    assert all(isinstance(item.future.exception(0), ZeroDivisionError) for item in (*packed, *steps))


def test_answers_that_are_none_fail_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, packed, steps = Engine(), batches("a"), [StepWaiting("a", AdamParams(), ONE, since=0.0)]
    monkeypatch.setattr(engine, "forward_backward", lambda batches: [])
    monkeypatch.setattr(engine, "optim_steps", lambda asked: [None])
    assert answer_pack(engine, packed) is None
    answer_steps(engine, steps)
    assert isinstance(packed[0].future.exception(0), ValueError)
    assert isinstance(steps[0].future.exception(0), TypeError)


def test_a_refused_step_gets_its_error_and_the_others_their_metrics() -> None:
    good, bad = (StepWaiting(run, AdamParams(), ONE, since=0.0) for run in ("a", "bad"))
    answer_steps(Engine(), [good, bad])
    assert good.future.result(0)["steps_together"] == 2.0
    assert isinstance(bad.future.exception(0), FieldInvalid)


def test_a_call_is_answered_with_what_it_returns_or_raises() -> None:
    good, bad = CallWaiting(lambda: 7), CallWaiting(lambda: 1 // 0)
    answer_call(good)
    answer_call(bad)
    assert good.future.result(0) == 7
    with pytest.raises(ZeroDivisionError):
        bad.future.result(0)
