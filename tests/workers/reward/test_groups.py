"""Groups scored: a text that cannot be scored is dropped with its reason, and is never a zero."""

from collections.abc import Callable

import pytest

from openrl.domain.errors import (
    AnswerUnreadable,
    ClaimLost,
    Draining,
    EngineBusy,
    FieldInvalid,
    GraderFailed,
    OpNotFound,
    RewardUnknown,
)
from openrl.domain.ids import BatchId, OpId, TenantId
from openrl.domain.judge import Answers, Judged
from openrl.domain.op import RewardOp, ScoreTexts, Status
from openrl.domain.outcome import Category, Failure, Record, Result, Scores
from openrl.domain.rollout import Dropped, Graded, RewardPart, RolledOut, ScoreGroup
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.port import Held
from openrl.rewards import RewardResult
from workers.reward.groups import Groups

NOTHING = Tensor(dtype=DType.INT32, shape=(0,), data=b"")


def sampled(*texts: str) -> Record:
    result = RolledOut(prompt=NOTHING, sequences=(), texts=texts, queued_seconds=0.0, sampled_seconds=0.0)
    return Record(id=OpId("s"), tenant=TenantId("t"), kind="roll_out", status=Status.DONE, attempts=1, result=result)


def held(*rewards: RewardPart, context: dict[str, str] | None = None, samples: int = 2) -> Held:
    action = ScoreGroup(of=OpId("s"), samples=samples, rewards=rewards, context=context or {})
    op = RewardOp(id=OpId("o"), tenant=TenantId("t"), action=action, batch=BatchId("b"))
    return Held(op=op, epoch=1, attempt=1)


def groups(record: Record | None, work: "Scripted", **how: float) -> Groups:
    return Groups(work, lambda op_id: record if op_id == "s" else None, **how)


def graded(work: Groups, claim: Held) -> Graded:
    result = work(claim)
    assert isinstance(result, Graded)
    return result


class Scripted:
    """A `Work` that scores by a function of the text and of what is asked, which may raise."""

    def __init__(self, score: Callable[[str, ScoreTexts], float]) -> None:
        self.score, self.calls = score, []  # type: ignore[var-annotated]
        self.asked: list[tuple[str, str]] = []

    def __call__(self, held: Held) -> Result:
        assert isinstance(held.op, RewardOp) and isinstance(held.op.action, ScoreTexts)
        (text,) = held.op.action.texts
        self.asked.append((text, held.op.action.reward))
        return Scores(values=(self.score(text, held.op.action),), info=({"why": text},))

    def abort(self, op_id: OpId) -> None:
        self.calls.append(f"abort {op_id}")

    def drain(self) -> None:
        self.calls.append("drain")


def length(text: str, action: ScoreTexts) -> float:
    return float(len(text))


def test_the_reward_is_the_weighted_sum_of_what_the_functions_say() -> None:
    def score(text: str, action: ScoreTexts) -> float:
        return float(action.params.get("what", action.contexts[0]["answer"]) in text)

    rewards = (RewardPart(name="one", weight=2.0, params={"what": "it"}), RewardPart(name="two", weight=-0.5))
    work = groups(sampled("it is 7", "8"), Scripted(score))
    result = graded(work, held(*rewards, context={"answer": "7"}))
    assert [(grade.sample, grade.reward, grade.parts) for grade in result.grades] == [
        (0, 1.5, {"one": 1.0, "two": 1.0}),
        (1, 0.0, {"one": 0.0, "two": 0.0}),
    ]
    assert result.dropped == () and result.scored_seconds >= 0


def test_what_functions_say_to_people_is_told_by_their_names() -> None:
    result = graded(groups(sampled("a"), Scripted(length)), held(RewardPart(name="one"), RewardPart(name="two")))
    assert result.grades[0].info == {"one.why": "a", "two.why": "a"}


def test_a_text_that_fails_is_tried_again_and_costs_the_others_nothing() -> None:
    failures = {"bad": 2, "late": 1}

    def score(text: str, action: ScoreTexts) -> float:
        if failures.get(text, 0):
            failures[text] -= 1
            raise EngineBusy("the child died")
        return 1.0

    work = Scripted(score)
    result = graded(groups(sampled("good", "bad", "late"), work), held(RewardPart(name="f")))
    assert [grade.sample for grade in result.grades] == [0, 2]
    assert result.dropped == (
        Dropped(sample=1, error="EngineBusy", reason="f: the engine cannot take this now: the child died"),
    )
    assert [text for text, _ in work.asked] == ["good", "bad", "bad", "late", "late"]


def test_a_bug_in_a_function_costs_its_text_only() -> None:
    result = graded(groups(sampled("0", "1"), Scripted(lambda text, _: 1 / int(text))), held(RewardPart(name="f")))
    assert [(grade.sample, grade.reward) for grade in result.grades] == [(1, 1.0)]
    assert result.dropped == (Dropped(sample=0, error="ZeroDivisionError", reason="f: division by zero"),)


def test_what_will_never_be_scored_is_not_tried_again() -> None:
    def refuse(text: str, action: ScoreTexts) -> float:
        raise FieldInvalid("texts[0]", "is odd")

    work = Scripted(refuse)
    result = graded(groups(sampled("a"), work), held(RewardPart(name="f"), RewardPart(name="g")))
    assert result.dropped == (Dropped(sample=0, error="FieldInvalid", reason="f: text: is odd"),)
    assert work.asked == [("a", "f")]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FieldInvalid("contexts[].answer", "is missing"), "g: context.answer: is missing"),
        (FieldInvalid("contexts[0].answer", "is missing"), "g: context.answer: is missing"),
        (FieldInvalid("params.pattern", "is odd"), "g: rewards[1].params.pattern: is odd"),
        (RewardUnknown("g", ("f",)), "g: reward: no reward function 'g'; known: f"),
    ],
)
def test_what_a_function_cannot_use_is_named(error: Exception, reason: str) -> None:
    def score(text: str, action: ScoreTexts) -> float:
        if action.reward == "g":
            raise error
        return 1.0

    result = graded(groups(sampled("a"), Scripted(score)), held(RewardPart(name="f"), RewardPart(name="g")))
    assert [dropped.reason for dropped in result.dropped] == [reason] and result.grades == ()


def test_samples_that_failed_are_dropped_for_what_they_failed_with() -> None:
    failure = Failure(error="FieldInvalid", message="prompts[3].messages: no", category=Category.USER)
    record = Record(
        id=OpId("s"), tenant=TenantId("t"), kind="roll_out", status=Status.FAILED, attempts=1, failure=failure
    )
    result = graded(groups(record, Scripted(length)), held(RewardPart(name="exact")))
    assert result.grades == () and [dropped.sample for dropped in result.dropped] == [0, 1]
    assert {(each.error, each.reason) for each in result.dropped} == {("FieldInvalid", "prompts[3].messages: no")}


def test_samples_that_are_gone_are_an_error() -> None:
    with pytest.raises(OpNotFound):
        groups(None, Scripted(length))(held(RewardPart(name="exact")))


def test_texts_whose_turn_comes_too_late_are_dropped_and_not_waited_for() -> None:
    result = graded(groups(sampled("a"), Scripted(length), group_seconds=-1.0), held(RewardPart(name="f")))
    assert [dropped.error for dropped in result.dropped] == ["GraderOverdue"]


@pytest.mark.parametrize("error", [Draining(), ClaimLost("o")])
def test_a_worker_that_goes_hands_the_group_back_whole(error: Exception) -> None:
    def leave(text: str, action: ScoreTexts) -> float:
        raise error

    with pytest.raises(type(error)):
        groups(sampled("a"), Scripted(leave))(held(RewardPart(name="f")))


def test_other_ops_pass_as_they_are() -> None:
    work = Scripted(length)
    action = ScoreTexts(reward="f", texts=("abc",), contexts=({},))
    op = RewardOp(id=OpId("o"), tenant=TenantId("t"), action=action)
    wrapped = groups(None, work)
    assert wrapped(Held(op=op, epoch=1, attempt=1)) == Scores(values=(3,), info=({"why": "abc"},))
    wrapped.abort(OpId("o"))
    wrapped.drain()
    assert work.calls == ["abort o", "drain"]


def test_what_a_judge_said_is_scored_and_what_nobody_can_read_is_dropped() -> None:
    answers = (Answers(sample=0, texts=("yes",)), Answers(sample=1, texts=("what?",)))
    lost = (Dropped(sample=2, error="FieldInvalid", reason="too long"),)
    judged = Record(
        id=OpId("j"),
        tenant=TenantId("t"),
        kind="ask_judge",
        status=Status.DONE,
        attempts=1,
        result=Judged(answers=answers, dropped=lost),
    )

    def score(text: str, action: ScoreTexts) -> float:
        if action.reward == "judge" and "yes" not in text:
            raise AnswerUnreadable(text)
        return 1.0

    work = Scripted(score)
    records = {"s": sampled("a", "b", "c"), "j": judged}
    rewards = (RewardPart(name="f"), RewardPart(name="judge", weight=2.0, answers=OpId("j")))
    result = graded(Groups(work, lambda op: records.get(op)), held(*rewards, samples=3))
    assert [(grade.sample, grade.reward) for grade in result.grades] == [(0, 3.0)]
    assert [(each.sample, each.error) for each in result.dropped] == [(1, "AnswerUnreadable"), (2, "FieldInvalid")]
    assert result.dropped[1].reason == "judge: too long"
    assert work.asked.count(('["what?"]', "judge")) == 1, "asking the same answer again is of no use"


def test_functions_that_score_a_group_at_once_are_asked_once() -> None:
    asked: list[ScoreTexts] = []

    def at_once(held: Held, action: ScoreTexts) -> list[RewardResult | GraderFailed]:
        asked.append(action)
        return [RewardResult(1.0, {"a": 2.0}), GraderFailed("texts[1]", "answered 500"), RewardResult(0.5)]

    work = Scripted(length)
    rewards = (RewardPart(name="hook", weight=2.0, params={"url": "u"}), RewardPart(name="f"))
    scored = Groups(work, lambda op_id: sampled("a", "b", "c"), {"hook": at_once})
    result = graded(scored, held(*rewards, context={"x": "y"}, samples=3))
    assert [(grade.sample, grade.reward, grade.parts.get("hook.a")) for grade in result.grades] == [
        (0, 3.0, 2.0),
        (2, 2.0, None),
    ]
    reason = "hook: texts[1]: the grader answered 500; no score was made up"
    assert result.dropped == (Dropped(sample=1, error="GraderFailed", reason=reason),)
    assert asked == [ScoreTexts(reward="hook", texts=("a", "b", "c"), contexts=({"x": "y"},) * 3, params={"url": "u"})]
    assert work.asked == [("a", "f"), ("c", "f")]


@pytest.mark.parametrize("error", [Draining(), ClaimLost("o")])
def test_a_worker_that_goes_hands_a_group_back_that_is_scored_at_once(error: Exception) -> None:
    def leave(held: Held, action: ScoreTexts) -> list[RewardResult | GraderFailed]:
        raise error

    with pytest.raises(type(error)):
        Groups(Scripted(length), lambda op_id: sampled("a"), {"f": leave})(held(RewardPart(name="f")))


def test_a_group_that_cannot_be_asked_about_at_once_is_dropped_with_the_reason() -> None:
    def refuse(held: Held, action: ScoreTexts) -> list[RewardResult | GraderFailed]:
        raise FieldInvalid("params.url", "is not allowed")

    scored = Groups(Scripted(length), lambda op_id: sampled("a"), {"f": refuse})
    result = graded(scored, held(RewardPart(name="f")))
    assert [each.reason for each in result.dropped] == ["f: rewards[0].params.url: is not allowed"]


@pytest.mark.parametrize("weight", [1e101, -1e101, 1e308])
def test_a_reward_that_sums_could_not_hold_is_dropped_with_the_reason(weight: float) -> None:
    rewards = (RewardPart(name="f"), RewardPart(name="g", weight=weight))
    result = graded(groups(sampled("a" * 10), Scripted(length)), held(*rewards))
    assert result.grades == () and result.dropped[0].error == "FieldInvalid"
    assert result.dropped[0].reason.startswith("g: rewards[1].weight: ")


def test_what_was_answered_at_once_is_told_however_late() -> None:
    ask = {"f": lambda held, action: [RewardResult(0.5)]}
    scored = Groups(Scripted(length), lambda op_id: sampled("a"), ask, group_seconds=-1.0)
    assert [grade.reward for grade in graded(scored, held(RewardPart(name="f"))).grades] == [0.5]
