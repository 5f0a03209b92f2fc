import json
from pathlib import Path

import pytest
from autoresearch import readings
from autoresearch.config import Metric
from autoresearch.errors import Crashed


def test_the_last_line_of_the_metric_counts() -> None:
    assert readings.value("score", "score: 1\nother_score: 7\nscore: 0.25\nseconds: 3\n") == 0.25


@pytest.mark.parametrize(
    "said", ["", "other_score: 1", "score 1", "score: nan", "score: inf", "score: 1 of 2", "score: a"]
)
def test_no_number_is_no_figure(said: str) -> None:
    with pytest.raises(Crashed, match="score"):
        readings.value("score", said)


@pytest.mark.parametrize(
    ("told", "at", "score", "found"),
    [
        ([1, 0], None, None, {"0": 1.0, "1": 0.0}),
        ({"a": 0.5}, None, None, {"a": 0.5}),
        ({"before": [0], "rl": [{"match": 1, "level": 2}]}, "rl", "match", {"0": 1.0}),
        ([True], None, None, {"0": 1.0}),
    ],
)
def test_problems_are_read_where_they_lie(tmp_path: Path, told: object, at: str, score: str, found: object) -> None:
    (tmp_path / "problems.json").write_text(json.dumps(told))
    assert readings.problems(tmp_path / "problems.json", at, score) == found


@pytest.mark.parametrize(
    ("text", "at", "score", "words"),
    [
        ("[1, NaN]", None, None, "problem 1 of p.json is no finite number"),
        ('[1, "a"]', None, None, "problem 1 of p.json is no number"),
        ("[1, null]", None, None, "problem 1 of p.json is no number"),
        ("[]", None, None, "neither a list nor an object of scores"),
        ("3", None, None, "neither a list nor an object of scores"),
        ("{", None, None, "p.json is no JSON"),
        ("[1]", "rl", None, "p.json has no 'rl'"),
        ("[1]", None, "match", "problem 0 of p.json has no 'match'"),
    ],
)
def test_what_is_no_score_is_named(tmp_path: Path, text: str, at: str, score: str, words: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(Crashed) as caught:
        readings.problems(tmp_path / "p.json", at, score)
    assert words in str(caught.value)


def test_problems_that_were_announced_and_not_written_are_a_crash(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("score: 1\n")
    metric = Metric(name="score", mode="max", problems="p.json")
    with pytest.raises(Crashed, match=r"it wrote no p\.json"):
        readings.run(0, metric, tmp_path / "log", tmp_path, 1.0)


def test_a_curve_is_what_can_be_read_of_it(tmp_path: Path) -> None:
    lines = [{"reward": 0.5}, {"loss": 3}, {"reward": "x"}, {"reward": float("nan")}, {"reward": 1}]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert readings.curve(tmp_path / "m.jsonl", "reward") == [0.5, 1.0]
    assert readings.curve(tmp_path / "missing", "reward") == []


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff" * 100_000 + b"\nscore: 2\n")
    assert readings.tail(tmp_path / "log", 10) == "\nscore: 2\n"
    assert readings.tail(tmp_path / "missing") == ""
