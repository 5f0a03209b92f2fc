import pytest

from openrl.domain.errors import FieldInvalid, RewardUnknown
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import RewardOp, ScoreTexts
from openrl.ledger.port import Held
from workers.reward import functions
from workers.reward import work as reward_work
from workers.reward.work import RewardWork


@pytest.mark.parametrize(
    ("name", "text", "context", "params", "score"),
    [
        ("exact", " Paris\n", {"answer": "Paris"}, {}, 1.0),
        ("exact", "paris", {"answer": "Paris"}, {}, 0.0),
        ("exact", "paris", {"answer": "Paris"}, {"ignore_case": "true"}, 1.0),
        ("regex", "the answer is 42.", {}, {"pattern": r"\b42\b"}, 1.0),
        ("regex", "the answer is 421.", {"pattern": r"\b42\b"}, {"pattern": "."}, 0.0),
        ("numeric", "3 plus 4 is 7", {"answer": "7"}, {}, 1.0),
        ("numeric", "about 1,234.5 in all", {"answer": "1234.5"}, {}, 1.0),
        ("numeric", "7 is 3 plus 4", {"answer": "7"}, {}, 0.0),
        ("numeric", "3.2", {"answer": "3"}, {"tolerance": "0.5"}, 1.0),
        ("numeric", "minus four: -4", {"answer": "-4"}, {}, 1.0),
        ("numeric", "no number here", {"answer": "7"}, {}, 0.0),
    ],
)
def test_a_built_in_scores(name: str, text: str, context: dict[str, str], params: dict[str, str], score: float) -> None:
    assert functions.find(name)(text, context, params) == score


@pytest.mark.parametrize(
    ("name", "context", "params", "field"),
    [
        ("exact", {}, {}, "contexts[].answer"),
        ("regex", {}, {}, "params.pattern"),
        ("regex", {}, {"pattern": "("}, "params.pattern"),
        ("regex", {"pattern": "("}, {"pattern": "."}, "contexts[].pattern"),
        ("regex", {}, {"pattern": "(" * 5000 + ")" * 5000}, "params.pattern"),
        ("regex", {}, {"pattern": "a{99999999999}"}, "params.pattern"),
        ("numeric", {"answer": "seven"}, {}, "contexts[].answer"),
        ("numeric", {"answer": "7"}, {"tolerance": "nan"}, "params.tolerance"),
        ("numeric", {"answer": "7"}, {"tolerance": "-1"}, "params.tolerance"),
    ],
)
def test_what_cannot_be_scored_is_an_error_and_no_zero(
    name: str, context: dict[str, str], params: dict[str, str], field: str
) -> None:
    with pytest.raises(FieldInvalid) as caught:
        functions.find(name)("7", context, params)
    assert caught.value.field == field


def test_an_unknown_function_is_named_with_the_known_ones() -> None:
    with pytest.raises(RewardUnknown, match=r"'nope'.*exact, numeric, regex"):
        functions.find("nope")


def test_texts_are_scored_in_order() -> None:
    action = ScoreTexts(reward="exact", texts=("a", "b", "a"), contexts=({"answer": "a"},) * 3)
    scores = RewardWork()(Held(op=RewardOp(id=OpId("o"), tenant=TenantId("t"), action=action), epoch=1, attempt=1))
    assert scores.values == (1.0, 0.0, 1.0)


@pytest.mark.parametrize("limits", [{"TEXT_SECONDS": 0.1}, {"OP_SECONDS": 0.1}])
def test_a_pattern_that_never_ends_fails_its_op_and_not_the_worker(
    limits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in limits.items():
        monkeypatch.setattr(reward_work, name, seconds)
    action = ScoreTexts(reward="regex", texts=("a", "a" * 60 + "b"), contexts=({}, {}), params={"pattern": "(a+)+$"})
    with pytest.raises(FieldInvalid, match=r"^texts\[1\]: was not scored in time"):
        RewardWork()(Held(op=RewardOp(id=OpId("o"), tenant=TenantId("t"), action=action), epoch=1, attempt=1))
    assert functions.find("regex")("a", {}, {"pattern": "a"}) == 1.0
