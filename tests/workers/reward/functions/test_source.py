"""A reward function that came with the request: its contract, and that its process is its own."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from scoring import held, nursery_of

from openrl.domain.errors import FieldInvalid, GraderFailed, RewardFailed, RewardWithheld
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.nursery import Nursery
from workers.reward.work import RewardWork

LENGTH = "def score(text, context, params): return len(text)"


@pytest.fixture(scope="module")
def strong() -> Iterator[Nursery]:
    nursery = nursery_of(Level.STRONG)
    yield nursery
    nursery.close()


@pytest.fixture
def scored(strong: Nursery) -> Iterator[Any]:
    work = RewardWork(strong, max_attempts=3)
    yield lambda source, texts=("a",), contexts=None, **params: work(
        held("source", texts, contexts, source=source, **params)
    )
    work.close()


def test_it_scores_like_a_function_of_an_installed_module(scored: Any) -> None:
    source = """
        from openrl.rewards import FieldInvalid, RewardResult, reward
        @reward(version="1", pure=True, seconds=2.0)
        def score(text, context, params):
            if "answer" not in context: raise FieldInvalid("context.answer", "is missing")
            right = text == context["answer"]
            return RewardResult(right * float(params["most"]), {"length": len(text)}, {"params": " ".join(params)})
    """
    source = textwrap.dedent(source)
    scores = scored(source, ["7", "seven"], [{"answer": 7}] * 2, most=3)
    assert scores.values == (3.0, 0.0) and scores.parts == ({"length": 1.0}, {"length": 5.0})
    assert scores.info[0] == {"params": "most"}, "its own source is not among its parameters"
    with pytest.raises(FieldInvalid, match=r"contexts\[1\]\.answer: is missing"):
        scored(source, ["7", "7"], [{"answer": 7}, {}], most=3)
    assert scored(LENGTH, ["abc"]).values == (3.0,)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "defines no function score"),
        ("score = 1", "defines no function score"),
        ("def score(text, context, params) return 1", "cannot be run: SyntaxError"),
        ("1 / 0", "cannot be run: ZeroDivisionError"),
        ("import no_such_module", "cannot be run: ModuleNotFoundError"),
        ("(" * 5000, "cannot be run: "),
    ],
)
def test_source_that_is_no_function_is_named(scored: Any, source: str, problem: str) -> None:
    with pytest.raises((FieldInvalid, GraderFailed), match=problem):
        scored(source)


def test_a_bug_in_it_is_told(scored: Any) -> None:
    with pytest.raises(RewardFailed, match=r"texts\[1\]: reward function 'source' failed: ZeroDivisionError"):
        scored("def score(text, context, params): return 1 / int(text)", ["1", "0"])


@pytest.mark.parametrize("how", ["raise SystemExit(0)", "import os; os._exit(0)", "import os; os.abort()"])
def test_one_that_ends_its_process_is_no_score(scored: Any, how: str) -> None:
    with pytest.raises(GraderFailed, match=r"texts\[0\]: the grader died"):
        scored(f"def score(text, context, params):\n    {how}")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"value": 1.0},
        {"value": "x", "parts": {}, "info": {}},
        {"value": None, "parts": {}, "info": {}},
        {"value": float("nan"), "parts": {}, "info": {}},
        {"value": float("inf"), "parts": {}, "info": {}},
        {"value": 10**400, "parts": {}, "info": {}},
        {"value": 1.0, "parts": {"a": float("nan")}, "info": {}},
        {"value": 1.0, "parts": [], "info": {}},
        {"value": 1.0, "parts": {}, "info": "x"},
        {"value": 1.0, "parts": {str(at): 1.0 for at in range(33)}, "info": {}},
    ],
    ids=lambda answer: json.dumps(answer)[:40],
)
def test_an_answer_that_it_makes_up_itself_is_a_score_or_none(scored: Any, answer: dict[str, Any]) -> None:
    with pytest.raises(GraderFailed, match="answered no score"):
        scored(_answering(answer))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"invalid": 1}, FieldInvalid),
        ({"invalid": [1, {}, 3]}, FieldInvalid),
        ({"invalid": ["f", "x" * 100_000]}, FieldInvalid),
        ({"bug": {"a": "b" * 100_000}}, RewardFailed),
        ({"run": {"code": "1", "calls": []}, "seconds": 1e9}, RewardFailed),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_error_that_it_makes_up_itself_is_a_bounded_one(scored: Any, answer: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        scored(_answering(answer))
    assert len(str(caught.value)) < 5000


def _answering(answer: Any) -> str:
    """Source that writes on the pipe by itself."""
    data = json.dumps(answer).encode()
    frame = len(data).to_bytes(4, "big") + data
    return f"import os\ndef score(text, context, params):\n    os.write(3, {frame!r})\n    return 0.0"


def test_nothing_that_it_leaves_behind_reaches_another_request(strong: Nursery) -> None:
    work = RewardWork(strong, max_attempts=3)
    spoil = "import builtins, openrl.rewards, workers.reward.functions.exact as exact\n"
    spoil += "exact.score = lambda *_: 9.0\nbuiltins.kept = 1\n" + LENGTH
    assert work(held("source", ["ab"], source=spoil)).values == (2.0,)
    assert work(held("exact", ["a"], [{"answer": "b"}])).values == (0.0,)
    with pytest.raises(RewardFailed, match="NameError"):
        work(held("source", ["a"], source="def score(text, context, params): return kept"))
    work.close()


def test_where_it_is_withheld_it_is_refused(any_nursery: Nursery) -> None:
    work = RewardWork(any_nursery, max_attempts=3, withheld={"source": "the level is kernel"})
    with pytest.raises(RewardWithheld, match="reward: 'source' is not offered here: the level is kernel"):
        work(held("source", ["a"], source=LENGTH))
    work.close()
