import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from scoring import held

from openrl.domain.errors import (
    ClaimLost,
    Draining,
    FieldInvalid,
    GraderFailed,
    GraderGaveUp,
    PassingError,
    RewardBroken,
    RewardFailed,
    RewardUnknown,
)
from openrl.domain.ids import OpId
from workers.reward import work as reward_work
from workers.reward.sandbox.nursery import Nursery
from workers.reward.work import RewardWork

FOREVER = {"pattern": "(a|a)*$"}
LONG = "a" * 60 + "b"


def children() -> set[int]:
    """Grandchildren of this process that score: those of the zygotes."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_texts_are_scored_in_order(score: Any) -> None:
    scores = score("exact", ["a", "b", "a"], [{"answer": "a"}] * 3)
    assert scores.values == (1.0, 0.0, 1.0)
    assert (scores.parts, scores.info) == ((), ())


def test_parts_and_info_come_with_the_values(score: Any) -> None:
    scores = score("format", ["<a></a>", ""], tags=["a"])
    assert (scores.values, scores.parts) == ((1.0, 0.0), ({"a": 1.0}, {"a": 0.0}))


def test_a_child_serves_again_and_again(work: RewardWork) -> None:
    work(held("exact", ["a"], [{"answer": "a"}]))
    before = children()
    for text in "bcd":
        work(held("exact", [text], [{"answer": "a"}]))
    with pytest.raises(FieldInvalid):
        work(held("exact", ["a"]))
    work(held("exact", ["e"], [{"answer": "a"}]))
    assert children() == before


def test_a_child_that_let_code_run_serves_once(work: RewardWork) -> None:
    before = children()
    work(held("python_tests", ["x = 1"], [{"tests": [{"eval": "x", "expected": 1}]}]))
    assert children() == before


def test_a_wrong_context_is_named_with_its_place(score: Any) -> None:
    with pytest.raises(FieldInvalid, match=r"^contexts\[2\]\.answer: is missing"):
        score("exact", ["a", "b", "c"], [{"answer": "a"}, {"answer": "b"}, {}])
    with pytest.raises(FieldInvalid, match=r"^params\.pattern: "):
        score("regex", ["a"], pattern="(")


def test_an_unknown_function_is_named_with_the_known_ones(score: Any) -> None:
    with pytest.raises(RewardUnknown, match=r"'nope'.*exact, format, json_schema.* sql_execution"):
        score("nope", ["a"])


def test_a_text_that_takes_up_its_time_has_the_score_for_that_and_the_others_have_theirs(work: RewardWork) -> None:
    texts = ["a", LONG, "a", "b"]
    scores = work(held("regex", texts, **FOREVER))
    assert scores.values == (1.0, 0.0, 1.0, 1.0)
    assert scores.info == ({}, {"ending": "time"}, {}, {})


@pytest.fixture
def busy(work: RewardWork) -> Iterator[Callable[..., list[BaseException]]]:
    """An op that is being scored; what it raised once something was done to it."""
    threads = []

    def busy(act: Callable[[], object]) -> list[BaseException]:
        raised: list[BaseException] = []

        def run() -> None:
            try:
                work(held("regex", [LONG], **FOREVER))
            except BaseException as error:
                raised.append(error)

        before = children()
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        while not children() - before:
            time.sleep(0.01)
        time.sleep(0.1)
        began = time.monotonic()
        act()
        threads[-1].join(10)
        assert time.monotonic() - began < 1
        return raised

    yield busy
    for thread in threads:
        thread.join()


def test_an_op_that_is_no_longer_ours_is_let_go(work: RewardWork, busy: Any) -> None:
    (error,) = busy(lambda: work.abort(OpId("op")))
    assert isinstance(error, ClaimLost)
    work.abort(OpId("another"))


def test_a_worker_that_goes_hands_its_ops_back(work: RewardWork, busy: Any) -> None:
    (error,) = busy(work.drain)
    assert isinstance(error, Draining)
    with pytest.raises(Draining):
        work(held("exact", ["a"], [{"answer": "a"}]))


def test_a_killed_grader_is_no_score(work: RewardWork, busy: Any) -> None:
    before = children()

    def kill() -> None:
        for pid in children() - before:
            psutil.Process(pid).kill()

    (error,) = busy(kill)
    assert isinstance(error, GraderFailed)
    assert "signal 9" in str(error)


def test_a_child_that_died_idle_is_replaced(work: RewardWork) -> None:
    before = children()
    work(held("exact", ["a"], [{"answer": "a"}]))
    for pid in children() - before:
        killed = psutil.Process(pid)
        killed.kill()
        while killed.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    assert work(held("exact", ["b"], [{"answer": "b"}])).values == (1.0,)


@pytest.mark.live
def test_killed_zygotes_are_replaced() -> None:
    before = set(psutil.Process().children())
    nursery = Nursery()
    zygotes = set(psutil.Process().children()) - before
    work = RewardWork(nursery, max_attempts=3)
    op = held("python_tests", ["x = 1"], [{"tests": [{"eval": "x", "expected": 1}]}])
    work(op)
    assert len(zygotes) == 2
    for zygote in zygotes:
        zygote.kill()
    for _ in range(3):
        try:
            assert work(op).values == (1.0,)
            break
        except GraderFailed:
            continue
    else:
        pytest.fail("never scored again")
    work.close()
    nursery.close()


def test_scores_of_pure_functions_are_kept(work: RewardWork, monkeypatch: pytest.MonkeyPatch) -> None:
    op = held("exact", ["a"], [{"answer": "a"}])
    work(op)
    monkeypatch.setattr(reward_work.Grading, "_ask", lambda *_: pytest.fail("asked again"))
    assert work(op).values == (1.0,)


def test_a_request_that_takes_a_worker_too_long_is_told_so(score: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_work, "OP_SECONDS", 0.0)
    with pytest.raises(FieldInvalid, match=r"^texts: a request gets 0 s .* send fewer"):
        score("exact", ["a"], [{"answer": "a"}])


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardWork]:
    """A worker beside whose packages one with reward functions is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "mine.py").write_text(PLUG_IN)
    facts = site / "mine-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    names = ("good", "plain", "bug", "nan", "memory", "leaves", "sneaky", "runs", "no_function")
    names += ("spins", "spins_unsaid", "naps", "surrogate", "greedy", "vast")
    points = "".join(f"{name} = mine:{name}\n" for name in names)
    (facts / "entry_points.txt").write_text(
        f"[openrl.rewards]\n{points}missing = nothing.at.all:x\nexact = mine:good\nabsent = mine:absent\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        nursery = Nursery()
        work = RewardWork(nursery, max_attempts=3)
    yield work
    work.close()
    nursery.close()


PLUG_IN = """
import os
import time
from openrl.rewards import RewardResult, reward
from workers.reward.execution import run_python

no_function = 7

@reward(version="3", pure=True, seconds=1.0)
def good(text, context, params):
    return RewardResult(len(text) / 10, parts={"length": len(text)}, info={"who": "good"})

def plain(text, context, params):
    return text == "yes"

def bug(text, context, params):
    return 1 / 0

def nan(text, context, params):
    return float("nan")

def vast(text, context, params):
    return {"above": 1.1e100, "below": -1.1e100}.get(text) or RewardResult(0, parts={text: 1})

def memory(text, context, params):
    return len(bytes(1 << 33))

def leaves(text, context, params):
    os._exit(3)

def sneaky(text, context, params):
    return run_python(text, [], seconds=1.0).ending == "answered"

@reward(seconds=0.3, overrun=-1.0)
def spins(text, context, params):
    while text == "spin":
        pass
    return 1

@reward(seconds=0.3)
def spins_unsaid(text, context, params):
    while True:
        pass

@reward(seconds=0.3, overrun=-1.0)
def naps(text, context, params):
    time.sleep(60)

def surrogate(text, context, params):
    return RewardResult(1, parts={"\\ud800": 1}, info={"word": "\\ud800"})

def greedy(text, context, params):
    return float(context.pop("left"))

@reward(executes=True)
def runs(text, context, params):
    ran = run_python(text, [{"eval": "x"}], seconds=1.0)
    return float(ran.results[0]["value"])
"""


@pytest.mark.parametrize("text", ["above", "below", "n" * 201])
def test_numbers_and_names_that_a_batch_could_not_add_up_are_no_score(plugged: RewardWork, text: str) -> None:
    with pytest.raises(RewardFailed, match=r"is no score; one is within 1e\+100 of zero|a name of more than 200 char"):
        plugged(held("vast", [text]))


def test_functions_of_installed_packages_are_found(plugged: RewardWork) -> None:
    scores = plugged(held("good", ["abc"]))
    assert (scores.values, scores.parts, scores.info) == ((0.3,), ({"length": 3.0},), ({"who": "good"},))
    assert plugged(held("plain", ["yes", "no"])).values == (1.0, 0.0)
    assert plugged(held("runs", ["x = 0.5"])).values == (0.5,)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "ModuleNotFoundError"),
        ("absent", "AttributeError"),
        ("no_function", "it is int and cannot be called"),
    ],
)
def test_a_broken_one_is_told_by_its_name(plugged: RewardWork, name: str, why: str) -> None:
    with pytest.raises(RewardBroken, match=f"^reward: '{name}' is installed but could not be loaded: .*{why}"):
        plugged(held(name, ["a"]))


def test_a_built_in_cannot_be_replaced(plugged: RewardWork) -> None:
    assert plugged(held("exact", ["a"], [{"answer": "a"}])).values == (1.0,)
    assert "exact of mine:good" in plugged._nursery.listing.broken


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("bug", RewardFailed, "ZeroDivisionError"),
        ("nan", RewardFailed, "which is no score"),
        ("sneaky", RewardFailed, "does not declare `executes`"),
        ("memory", GraderFailed, "ran out of memory"),
        ("leaves", GraderFailed, "exit status 3"),
    ],
)
def test_a_function_that_fails_is_no_zero(plugged: RewardWork, name: str, error: type, words: str) -> None:
    with pytest.raises(error, match=rf"^texts\[0\]: .*{words}"):
        plugged(held(name, ["a"]))


def test_what_a_function_declares_is_known_to_the_worker(plugged: RewardWork) -> None:
    functions = plugged._nursery.listing.functions
    assert (functions["good"].version, functions["good"].pure, functions["good"].seconds) == ("3", True, 1.0)
    assert (functions["plain"].pure, functions["runs"].executes) == (False, True)


def test_a_text_that_takes_up_its_time_is_worth_what_the_function_says(plugged: RewardWork) -> None:
    scores = plugged(held("spins", ["spin", "a", "spin"]))
    assert (scores.values, scores.info[0]) == ((-1.0, 1.0, -1.0), {"ending": "time"})


@pytest.mark.parametrize("name", ["spins_unsaid", "naps"])
def test_where_it_says_nothing_or_was_not_computing_there_is_no_score(plugged: RewardWork, name: str) -> None:
    with pytest.raises(GraderFailed, match=r"^texts\[0\]: the grader took longer than 0.3 s; no score") as caught:
        plugged(held(name, ["a"]))
    assert isinstance(caught.value, PassingError)
    with pytest.raises(GraderGaveUp, match=r"^texts\[0\]: .* given up after 3 attempts, no score"):
        plugged(held(name, ["a"], attempt=3))
    assert plugged(held("plain", ["yes"])).values == (1.0,)


def test_a_grader_that_stands_still_is_no_zero(plugged: RewardWork) -> None:
    plugged(held("plain", ["yes"]))
    psutil.Process(plugged._pool._idle[-1].number).suspend()
    with pytest.raises(GraderFailed, match=r"took longer than 0\.3 s"):
        plugged(held("spins", ["spin"]))


def test_what_is_told_can_be_written_down(plugged: RewardWork) -> None:
    scores = plugged(held("surrogate", ["a"]))
    assert (scores.parts, scores.info) == (({"?": 1.0},), ({"word": "?"},))


def test_each_text_has_its_own_context_whatever_a_function_does_to_it(plugged: RewardWork) -> None:
    contexts = [{"left": 1}, {"left": 1}, {"left": 2}, {"left": 1}, {"left": 1}]
    assert plugged(held("greedy", ["a"] * 5, contexts)).values == (1.0, 1.0, 2.0, 1.0, 1.0)
