"""Texts scored by a server: signed, tried again, checked; what fails is never a zero."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from endpoint import Endpoint, endpoint, lengths, posting
from scoring import held

from openrl.domain.errors import ClaimLost, Draining, FieldInvalid, GraderFailed, GraderGaveUp
from openrl.domain.ids import OpId
from openrl.domain.outcome import Result, Scores
from openrl.domain.webhook import signature
from openrl.ledger.port import Held
from workers.reward.webhooks import Rules, Webhooks

KEY = b"k" * 16


class Sandboxed:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, held: Held) -> Result:
        return Scores(values=(7.0,))

    def abort(self, op_id: OpId) -> None:
        self.calls.append(f"abort {op_id}")

    def drain(self) -> None:
        self.calls.append("drain")


@pytest.fixture
def up() -> Iterator[Endpoint]:
    with endpoint() as up:
        yield up


def webhooks(up: Endpoint, *, seconds: float = 5.0) -> Webhooks:
    rules = Rules(urls=(f"http://127.0.0.1:{up.port}/",), key=KEY, max_attempts=3, pause_seconds=0.01)
    return Webhooks(Sandboxed(), posting(seconds), rules)


def score(up: Endpoint, texts: list[str], **how: Any) -> Scores:
    result = webhooks(up)(held("webhook", texts, url=up.url, **how))
    assert isinstance(result, Scores)
    return result


def test_texts_are_scored_in_one_post_that_is_signed(up: Endpoint) -> None:
    contexts = [{"answer": 7}, {}]
    result = webhooks(up)(held("webhook", ["a", "é"], contexts, url=up.url, how="well"))
    assert result == Scores(values=(1.0, 1.0))
    ((headers, body),) = up.seen
    assert json.loads(body) == {
        "version": 1,
        "id": "op/0",
        "params": {"how": "well"},
        "texts": [{"text": "a", "context": {"answer": "7"}}, {"text": "é", "context": {}}],
    }
    timestamp = headers["OpenRL-Timestamp"]
    assert abs(int(timestamp) - time.time()) < 60
    assert headers["OpenRL-Signature"] == signature(KEY, timestamp, body)


def test_many_texts_go_in_several_posts(up: Endpoint) -> None:
    texts = ["a" * (at % 5) for at in range(150)]
    assert score(up, texts).values == tuple(map(float, map(len, texts)))
    assert [json.loads(body)["id"] for _, body in up.seen] == ["op/0", "op/64", "op/128"]


def test_parts_and_info_come_along(up: Endpoint) -> None:
    up.answer = lambda _: {"scores": [{"value": 0.5, "parts": {"a": 1}, "info": {"why": "so"}, "more": "ignored"}]}
    assert score(up, ["a"]) == Scores(values=(0.5,), parts=({"a": 1.0},), info=({"why": "so"},))


def test_what_may_pass_is_tried_again_with_the_same_body(up: Endpoint) -> None:
    statuses = [500, 429]
    up.answer = lambda body: statuses.pop() if statuses else lengths(body)
    assert score(up, ["abc"]).values == (3.0,)
    assert len(up.seen) == 3 and len({body for _, body in up.seen}) == 1


@pytest.mark.parametrize(("status", "posts"), [(503, 3), (404, 1)])
def test_a_server_that_fails_is_a_grader_that_failed(up: Endpoint, status: int, posts: int) -> None:
    up.answer = lambda _: status
    with pytest.raises(GraderFailed, match=rf"texts\[0\]: the grader at {up.url} answered {status}; no score was made"):
        score(up, ["a"])
    assert len(up.seen) == posts
    with pytest.raises(GraderGaveUp, match="given up after 3 attempts"):
        score(up, ["a"], attempt=3)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no json",
        b"[1.0]",
        {},
        {"scores": []},
        {"scores": [{"value": 1.0}, {"value": 1.0}]},
        {"scores": [{"value": "1.0"}]},
        {"scores": [{"value": True}]},
        b'{"scores": [{"value": NaN}]}',
        b'{"scores": [{"value": 1e999}]}',
        {"scores": [{"value": 1.0, "parts": {"a": "b"}}]},
        {"scores": [{"value": 1.0, "info": {"a": 1}}]},
        {"scores": [{"vale": 1.0}]},
        {"scores": [{"value": None}]},
        {"scores": [{"value": 1.0, "error": "or not"}]},
        {"scores": [{"value": 1.0, "parts": {str(at): 1.0 for at in range(33)}}]},
    ],
)
def test_an_answer_without_scores_is_a_grader_that_failed(up: Endpoint, answer: Any) -> None:
    up.answer = lambda _: answer
    with pytest.raises(GraderFailed, match="no score was made up"):
        score(up, ["a"])
    assert len(up.seen) == 1, "asking again would not help"


def test_a_text_that_the_server_cannot_score_costs_the_others_nothing(up: Endpoint) -> None:
    up.answer = lambda _: {"scores": [{"value": 1.0}, {"error": "too odd"}]}
    work, claim = webhooks(up), held("webhook", ["a", "b"], url=up.url)
    first, second = work.outcomes(claim, claim.op.action)  # type: ignore[arg-type]
    assert not isinstance(first, GraderFailed) and first.value == 1.0
    assert isinstance(second, GraderFailed) and "texts[1]: the grader" in str(second) and "too odd" in str(second)


def test_a_url_that_is_not_allowed_is_not_posted_to(up: Endpoint) -> None:
    with pytest.raises(FieldInvalid, match=r"params\.url: http://127\.0\.0\.1:1/ is not among the URLs"):
        webhooks(up)(held("webhook", ["a"], url="http://127.0.0.1:1/"))
    with pytest.raises(FieldInvalid, match=r"params\.url: must be a URL"):
        webhooks(up)(held("webhook", ["a"]))


def test_other_functions_are_scored_elsewhere(up: Endpoint) -> None:
    assert webhooks(up)(held("exact", ["a"])) == Scores(values=(7.0,))
    assert up.seen == []


@pytest.mark.parametrize(("leave", "error"), [("abort", ClaimLost), ("drain", Draining)])
def test_a_worker_that_goes_does_not_wait_for_a_server(up: Endpoint, leave: str, error: type[Exception]) -> None:
    up.answer = lambda _: lambda handler: time.sleep(5)
    work = webhooks(up, seconds=30.0)
    threading.Timer(0.2, (lambda: work.abort(OpId("op"))) if leave == "abort" else work.drain).start()
    began = time.monotonic()
    with pytest.raises(error):
        work(held("webhook", ["a"], url=up.url))
    assert time.monotonic() - began < 3
    if leave == "drain":
        with pytest.raises(Draining):
            work(held("webhook", ["a"], url=up.url))


def test_the_pause_between_tries_is_no_reason_to_stay(up: Endpoint) -> None:
    up.answer = lambda _: 500
    work = webhooks(up)
    work._rules = replace(work._rules, pause_seconds=60.0)
    threading.Timer(0.2, work.drain).start()
    with pytest.raises(Draining):
        work(held("webhook", ["a"], url=up.url))
