from pathlib import Path
from typing import Any

import pytest
from scoring import held

from openrl.domain.errors import FieldInvalid
from workers.reward.grading import Overfull, _look_into
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Child
from workers.reward.work import RewardWork


def test_a_child_that_still_owes_an_answer_is_not_asked_by_others(work: RewardWork) -> None:
    """The text behind the refused one was asked ahead, and takes a while."""
    contexts = [{"pattern": "("}, {"pattern": "^(a|a)*$"}]
    with pytest.raises(FieldInvalid, match=r"^contexts\[0\]\.pattern"):
        work(held("regex", ["a", "a" * 21 + "b"], contexts))
    assert work(held("regex", ["a"], pattern="a")).values == (1.0,)


def test_a_context_is_told_once_for_the_texts_that_share_it(work: RewardWork, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    ask = Child.ask

    def noted(child: Child, message: dict[str, Any], until: float) -> None:
        told.append("context" in message)
        ask(child, message, until)

    monkeypatch.setattr(Child, "ask", noted)
    contexts = [{"answer": "a"}, {"answer": "a"}, {"answer": "b"}, {"answer": "b"}]
    for name in ("x", "a"):  # the second op finds the first one's child
        assert work(held("exact", [name] * 4, contexts)).values[1:3] == (float(name == "a"), 0.0)
    assert told == [True, False, True, False] * 2


def test_a_folder_may_change_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").touch()
    lstat = Path.lstat

    def vanished(path: Path) -> object:
        if path.name == "gone":
            raise FileNotFoundError
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", vanished)
    _look_into(tmp_path, Limits())


def test_links_are_not_followed_and_everything_counts(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for number in range(5):
        (tmp_path / "elsewhere" / str(number)).touch()
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    (top / "link").symlink_to(tmp_path / "elsewhere")
    (top / "deep" / "file").write_bytes(bytes(100_000))
    _look_into(top, Limits(files=3))
    for limits in (Limits(files=2), Limits(disk_bytes=50_000)):
        with pytest.raises(Overfull):
            _look_into(top, limits)
