import subprocess
from pathlib import Path

import pytest
from autoresearch.errors import Refused
from autoresearch.worktrees import Worktrees

EDITABLE, SCRATCH = ["settings.json", "parts/*.py"], ["__pycache__/*", "*/__pycache__/*"]


@pytest.fixture
def research(tmp_path: Path) -> Path:
    folder = tmp_path / "research"
    (folder / "parts").mkdir(parents=True)
    (folder / "record").mkdir()
    for name in ("settings.json", "target.py", "autoresearch.toml", "parts/reward.py", "record/old.json"):
        (folder / name).write_text(f"{name}\n")
    return folder


class Desk:
    """A worktree of the research folder's files, to edit."""

    def __init__(self, research: Path, at: Path) -> None:
        self.worktrees = Worktrees(at / "repository.git")
        self.base = self.worktrees.commit(self.worktrees.base(research), None, "attempt-0000")
        self.place = at / "worktrees" / "0001"
        self.worktrees.add(self.place, self.base)

    def take(self) -> str:
        return self.worktrees.take(self.place, self.base, "attempt-0001", EDITABLE, SCRATCH)


@pytest.fixture
def desk(research: Path, tmp_path: Path) -> Desk:
    return Desk(research, tmp_path / "record")


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and path.name != ".git"}


def test_an_attempt_sees_the_target_and_nothing_of_the_harness(desk: Desk) -> None:
    assert files(desk.place) == {"settings.json", "target.py", "parts/reward.py"}


def test_an_allowed_edit_becomes_a_commit_that_a_fresh_worktree_has(desk: Desk) -> None:
    (desk.place / "settings.json").write_text("better\n")
    (desk.place / "parts" / "new.py").write_text("new\n")
    commit = desk.take()
    desk.worktrees.add(desk.place, commit)
    assert (desk.place / "settings.json").read_text() == "better\n"
    assert files(desk.place) == {"settings.json", "target.py", "parts/reward.py", "parts/new.py"}
    diff = desk.worktrees.diff(desk.base, commit)
    assert "+better" in diff and "-settings.json" in diff
    assert desk.worktrees.edits(desk.base, commit) == ["parts/new.py", "settings.json"]


@pytest.mark.parametrize(
    "path", ["target.py", "new.py", "autoresearch.toml", "parts/notes.txt", "runs.py", ".gitignore"]
)
def test_an_edit_elsewhere_is_refused_by_name_though_there_is_a_good_one(desk: Desk, path: str) -> None:
    (desk.place / "settings.json").write_text("better\n")
    (desk.place / path).write_text("mine\n")
    with pytest.raises(Refused, match=f"edited what it may not: {path}") as refused:
        desk.take()
    assert "+mine" in refused.value.diff  # for people to see


def test_a_removed_file_is_an_edit(desk: Desk) -> None:
    (desk.place / "target.py").unlink()
    with pytest.raises(Refused, match=r"target\.py"):
        desk.take()


def test_a_changed_mode_is_an_edit(desk: Desk) -> None:
    (desk.place / "target.py").chmod(0o755)
    with pytest.raises(Refused, match=r"target\.py"):
        desk.take()


def test_a_link_in_place_of_an_editable_file_is_refused(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine\n")
    (desk.place / "settings.json").unlink()
    (desk.place / "settings.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match=r"settings\.json"):
        desk.take()


def test_an_edit_is_found_however_git_was_told_to_overlook_it(desk: Desk) -> None:
    subprocess.run(["git", "update-index", "--assume-unchanged", "target.py"], cwd=desk.place, check=True)
    (desk.place / "target.py").write_text("mine\n")
    with pytest.raises(Refused, match=r"target\.py"):
        desk.take()


def test_ignored_files_are_edits_too(research: Path, tmp_path: Path) -> None:
    (research / ".gitignore").write_text("*.log\n")
    (research / "old.log").write_text("left out\n")
    desk = Desk(research, tmp_path / "record")
    assert "old.log" not in files(desk.place)
    (desk.place / "new.log").write_text("mine\n")
    with pytest.raises(Refused, match=r"new\.log"):
        desk.take()


@pytest.mark.parametrize("branch", ["master", "other"])
def test_a_repository_within_is_refused(desk: Desk, branch: str) -> None:
    """Whether it has something checked out or not."""
    place = desk.place / "parts" / "x.py"
    place.mkdir()
    (place / "code.py").write_text("mine\n")
    inner = Worktrees(place / ".git")
    inner.commit(inner.base(place), None, branch)
    with pytest.raises(Refused, match=r"parts/x\.py"):
        desk.take()


def test_what_python_leaves_is_neither_refused_nor_used(desk: Desk) -> None:
    (desk.place / "parts" / "__pycache__").mkdir()
    (desk.place / "parts" / "__pycache__" / "reward.pyc").write_text("mine\n")
    (desk.place / "settings.json").write_text("better\n")
    desk.worktrees.add(desk.place, desk.take())
    assert not (desk.place / "parts" / "__pycache__").exists()


def test_names_of_any_bytes_are_told(desk: Desk) -> None:
    (desk.place / "a\udcff\nb").write_text("mine\n")
    with pytest.raises(Refused, match="a\ufffd\nb"):
        desk.take()


def test_no_edit_is_no_attempt(desk: Desk) -> None:
    with pytest.raises(Refused, match="it changed nothing"):
        desk.take()


def test_a_commit_travels_to_another_record(desk: Desk, research: Path, tmp_path: Path) -> None:
    (desk.place / "settings.json").write_text("better\n")
    commit = desk.take()
    other = Desk(research, tmp_path / "other")
    other.worktrees.fetch(tmp_path / "record" / "repository.git", commit, "attempt-0001")
    other.worktrees.add(other.place, commit)
    assert (other.place / "settings.json").read_text() == "better\n"


def test_the_users_own_git_settings_change_nothing(
    research: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text("[core]\n autocrlf = true\n[commit]\n gpgsign = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    (research / "settings.json").write_bytes(b"a\r\n")
    desk = Desk(research, tmp_path / "record")
    assert (desk.place / "settings.json").read_bytes() == b"a\r\n"
