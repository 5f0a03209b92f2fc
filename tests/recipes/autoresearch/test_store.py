import json
from pathlib import Path

import pytest
from autoresearch import store
from autoresearch.errors import ResearchError
from autoresearch.store import Attempt, Confirmation, Record, Run
from autoresearch.verdicts import Comparison

COMPARISON = Comparison("sign test", 0.1, 0.03, 5, 0)
RUN = Run(seed=1, metric=0.5, problems={"a": 1.0}, curve=[0.1, 0.2], seconds=3.0)


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    record = Record(tmp_path)
    first = Attempt(number=0, began=1.0, runs=[RUN], state="ended", outcome="kept", reason="the unchanged target")
    second = Attempt(number=11, parent=0, options={"lr": 0.1, "on": True, "n": 3}, began=2.0, comparison=COMPARISON)
    record.save(second)
    record.save(first)
    assert record.attempts() == [first, second]
    confirmation = Confirmation(winner=11, runs={0: [RUN], 11: []}, comparison=COMPARISON)
    record.save_confirmation(confirmation)
    assert record.confirmation() == confirmation
    assert json.loads((tmp_path / "attempts/0011/attempt.json").read_text())["options"] == {
        "lr": 0.1,
        "on": True,
        "n": 3,
    }


def test_a_write_that_is_cut_off_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(tmp_path / "a.json", {"a": 1})

    def fail(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(store.os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        store.write(tmp_path / "a.json", {"a": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}


def test_a_number_that_json_does_not_have_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write(tmp_path / "a.json", {"a": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_one_harness_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(ResearchError, match="another `autoresearch run` works on")
    with Record(tmp_path).locked(), refused, Record(tmp_path).locked():
        pass
    with Record(tmp_path).locked():
        pass


def test_a_mean_is_there_once_all_seeds_are() -> None:
    attempt = Attempt(number=1, began=0, runs=[RUN])
    assert attempt.metric() is None and not attempt.usable()
    attempt.state = "ended"
    assert attempt.metric() == 0.5 and attempt.usable()
    attempt.outcome = "crashed"
    assert not attempt.usable()
