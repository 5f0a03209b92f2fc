import json
import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pytest

from openrl.domain.errors import CallerError, Draining, EngineBusy, RewardUnknown
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import Bell, RewardOp, ScoreTexts, Status
from openrl.domain.outcome import Category, Record, Result, Scores
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Held, Limits
from openrl.telemetry.logs import JsonLines
from workers import desk
from workers.keeper import Keeper
from workers.metrics import REGISTRY

OP = OpId("op-1")


@dataclass
class Script:
    """Work that does what the test says."""

    act: Callable[[RewardOp], Result]
    calls: int = 0
    aborted: list[OpId] = field(default_factory=list)

    def __call__(self, held: Held) -> Result:
        self.calls += 1
        assert isinstance(held.op, RewardOp)
        return self.act(held.op)

    def abort(self, op_id: OpId) -> None:
        self.aborted.append(op_id)

    def drain(self) -> None: ...


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rung() -> list[OpId]:
    return []


@pytest.fixture
def ledger(rung: list[OpId], clock: Clock) -> MemoryLedger:
    ledger = MemoryLedger(lambda bell: rung.append(bell.op), limits=Limits(max_attempts=2), clock=clock)
    op = RewardOp(id=OP, tenant=TenantId("t"), action=ScoreTexts(reward="exact", texts=("a",), contexts=({},)))
    ledger.append(op, Bell(op=OP, queue="reward.0", task="reward.score_texts", summary=""))
    return ledger


def answer(op: RewardOp) -> Result:
    return Scores(values=(1.0,))


def raising(error: Exception) -> Callable[[RewardOp], Result]:
    def act(op: RewardOp) -> Result:
        raise error

    return act


def record(ledger: MemoryLedger) -> Record:
    found = ledger.read(OP)
    assert found is not None
    return found


def test_a_bell_leads_to_a_settled_op(ledger: MemoryLedger) -> None:
    desk.serve(ledger, Keeper(ledger), Script(answer), OP)
    assert record(ledger).result == Scores(values=(1.0,))


def test_a_second_bell_does_nothing(ledger: MemoryLedger) -> None:
    work = Script(answer)
    desk.serve(ledger, Keeper(ledger), work, OP)
    desk.serve(ledger, Keeper(ledger), work, OP)
    desk.serve(ledger, Keeper(ledger), work, OpId("never recorded"))
    assert work.calls == 1


def test_a_callers_error_is_written_down_and_shown_to_whoever_watches(ledger: MemoryLedger) -> None:
    with pytest.raises(CallerError):
        desk.serve(ledger, Keeper(ledger), Script(raising(RewardUnknown("x", ("exact",)))), OP)
    failure = record(ledger).failure
    assert failure is not None
    assert (failure.error, failure.category) == ("RewardUnknown", Category.USER)


def test_a_bug_is_an_answer_too(ledger: MemoryLedger) -> None:
    with pytest.raises(ZeroDivisionError):
        desk.serve(ledger, Keeper(ledger), Script(raising(ZeroDivisionError("oops"))), OP)
    failure = record(ledger).failure
    assert failure is not None
    assert failure.category is Category.SERVER
    assert "ZeroDivisionError" in failure.message


def test_a_passing_error_gives_the_op_back_and_counts_the_attempt(ledger: MemoryLedger, rung: list[OpId]) -> None:
    work = Script(raising(EngineBusy("full")))
    desk.serve(ledger, Keeper(ledger), work, OP)
    assert record(ledger).status is Status.WAITING
    assert rung == [OP, OP]
    desk.serve(ledger, Keeper(ledger), work, OP)
    desk.serve(ledger, Keeper(ledger), work, OP)
    failure = record(ledger).failure
    assert failure is not None
    assert (work.calls, failure.error) == (2, "WornOut")


def test_draining_hands_back_without_counting(ledger: MemoryLedger) -> None:
    for _ in range(5):
        desk.serve(ledger, Keeper(ledger), Script(raising(Draining())), OP)
    desk.serve(ledger, Keeper(ledger), Script(answer), OP)
    assert record(ledger).status is Status.DONE


def test_a_result_that_comes_after_the_claim_was_lost_is_refused(ledger: MemoryLedger, clock: Clock) -> None:
    keeper = Keeper(ledger)

    def slow(op: RewardOp) -> Result:
        clock.now += 60
        ledger.sweep()
        desk.serve(ledger, keeper, Script(lambda _: Scores(values=(2.0,))), OP)
        return Scores(values=(1.0,))

    desk.serve(ledger, keeper, Script(slow), OP)
    assert record(ledger).result == Scores(values=(2.0,))


def test_renewal_keeps_a_claim_and_a_lost_one_is_told_to_the_work_once(ledger: MemoryLedger, clock: Clock) -> None:
    keeper, lost = Keeper(ledger), list[OpId]()
    held = ledger.claim(OP)
    assert held is not None
    with keeper.keeping(held, lost.append):
        for _ in range(5):
            clock.now += 10
            keeper.renew()
            ledger.sweep()
        assert (record(ledger).status, lost) == (Status.HELD, [])
        clock.now += 60
        ledger.sweep()
        keeper.renew()
        keeper.renew()
        assert lost == [OP]


def test_work_that_ends_during_a_renewal_has_lost_nothing(
    ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, lost = Keeper(ledger), list[OpId]()
    held = ledger.claim(OP)
    assert held is not None
    with ExitStack() as work:
        work.enter_context(keeper.keeping(held, lost.append))
        renew = ledger.renew

        def late(claims: Iterable[Held]) -> frozenset[OpId]:
            ledger.done(held, Scores(values=(1.0,)))
            work.close()
            return renew(claims)

        monkeypatch.setattr(ledger, "renew", late)
        keeper.renew()
    assert lost == []


def test_a_worker_that_drains_begins_nothing_and_hands_back_at_once(ledger: MemoryLedger, rung: list[OpId]) -> None:
    keeper, work = Keeper(ledger), Script(answer)
    keeper.close()
    desk.serve(ledger, keeper, work, OP)
    assert (record(ledger).status, work.calls, rung) == (Status.WAITING, 0, [OP, OP])


@pytest.mark.parametrize(
    ("outcome", "act"),
    [
        ("done", answer),
        ("given_back", raising(EngineBusy("full"))),
        ("drained", raising(Draining())),
        ("refused", raising(RewardUnknown("x", ("exact",)))),
        ("failed", raising(ZeroDivisionError("oops"))),
    ],
)
def test_ops_are_counted_by_how_they_ended(
    ledger: MemoryLedger, outcome: str, act: Callable[[RewardOp], Result]
) -> None:
    def counts() -> tuple[float | None, ...]:
        labels = {"kind": "score_texts"}
        ended = REGISTRY.get_sample_value("openrl_worker_ops_total", labels | {"outcome": outcome})
        return ended or 0.0, REGISTRY.get_sample_value("openrl_op_seconds_count", labels) or 0.0

    before = counts()
    with suppress(CallerError, ZeroDivisionError):
        desk.serve(ledger, Keeper(ledger), Script(act), OP)
    assert counts() == (before[0] + 1, before[1] + 1)


def test_records_of_an_op_at_work_name_it(ledger: MemoryLedger) -> None:
    lines: list[dict[str, object]] = []

    def note(op: RewardOp) -> Result:
        record = logging.makeLogRecord({"msg": "at work"})
        lines.append(json.loads(JsonLines().format(record)))
        return answer(op)

    desk.serve(ledger, Keeper(ledger), Script(note), OP)
    assert [(line["op"], line["tenant"], line["run"]) for line in lines] == [(OP, "t", None)]
