"""Each attempt's files: commits in a repository of the record's own, and worktrees in which attempts run.

The research folder may lie in a repository or not; it is only read. What an agent did is found by content, and of that
only regular files that it may edit are taken, into a commit on its parent's; the command then runs in a fresh worktree.
"""

import os
import shutil
import subprocess
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from autoresearch.config import PATTERN
from autoresearch.errors import Refused, ResearchError

REGULAR = ("100644", "100755")
ABSENT = "000000"
#: Never part of what an attempt gets: the harness's own files, and what Python leaves.
LEFT_OUT = (f"/{PATTERN}", "/record*/", "__pycache__/", ".git")
AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "autoresearch"), ("EMAIL", "autoresearch@localhost"))
}


class Change(NamedTuple):
    mode: str  #: as git writes it; ABSENT where the file is gone
    blob: str
    path: str


class Worktrees:
    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def base(self, folder: Path) -> str:
        """The tree of the research folder as it is now."""
        self._repository.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "--quiet", "--bare", str(self._repository)], check=True, env=_environment({}))
        (self._repository / "info").mkdir(exist_ok=True)
        (self._repository / "info" / "exclude").write_text("\n".join(LEFT_OUT) + "\n")
        return self._tree_of(folder)

    def commit(self, tree: str, parent: str | None, name: str) -> str:
        """The tree as a commit that is kept under this name."""
        parents = ["-p", parent] if parent else []
        commit = self._git("commit-tree", tree, *parents, "-m", name)
        self._git("update-ref", f"refs/heads/{name}", commit)
        return commit

    def tree(self, commit: str) -> str:
        return self._git("rev-parse", f"{commit}^{{tree}}")

    def add(self, place: Path, commit: str) -> None:
        """A fresh worktree; what an earlier one left there is gone."""
        self.remove(place)
        self._git("worktree", "add", "--quiet", "--force", "--detach", str(place), commit)

    def remove(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self._git("worktree", "prune")

    def take(self, place: Path, base: str, name: str, editable: list[str], scratch: list[str]) -> str:
        """A commit of what was edited at this place. Raises Refused where that is nothing, or more than may be."""
        try:
            left = self._tree_of(place, everything=True)
        except ResearchError as error:
            raise Refused(f"what it left cannot be read: {error}") from None
        found = self._changes(self.tree(base), left)
        changes = [change for change in found if not _among(change.path, scratch)]
        strangers = sorted(change.path for change in changes if not _may(change, editable))
        if strangers:
            told = f"it edited what it may not: {', '.join(strangers[:10])} (but only {', '.join(editable)})"
            raise Refused(_shown(told), self.diff(base, left))
        if not changes:
            raise Refused("it changed nothing")
        return self.commit(self._with(base, changes), base, name)

    def diff(self, base: str, commit: str) -> str:
        return _shown(self._git("diff", "--no-color", "--no-ext-diff", base, commit, strip=False))

    def edits(self, base: str, commit: str) -> list[str]:
        """The paths that differ."""
        return [_shown(change.path) for change in self._changes(base, commit)]

    def fetch(self, other: Path, commit: str, name: str) -> None:
        """A commit of another record's repository, kept here under this name."""
        self._git("fetch", "--quiet", str(other), f"+{commit}:refs/heads/{name}")

    def _tree_of(self, folder: Path, everything: bool = False) -> str:
        """All files of a folder as a tree; those that are left out too where `everything`."""
        with tempfile.TemporaryDirectory() as index:
            places = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": f"{index}/index"}
            forced = ["--force"] if everything else []
            self._git("add", "--all", *forced, ".", extra=places, cwd=folder)
            return self._git("write-tree", extra=places, cwd=folder)

    def _changes(self, before: str, after: str) -> list[Change]:
        told = self._git("diff-tree", "-r", "-z", "--no-renames", before, after, strip=False)
        fields = told.split("\0")[:-1]
        entries = zip(fields[::2], fields[1::2], strict=True)
        return [Change(mode=entry.split()[1], blob=entry.split()[3], path=path) for entry, path in entries]

    def _with(self, base: str, changes: list[Change]) -> str:
        """The base's tree with these changes."""
        with tempfile.TemporaryDirectory() as index:
            places = {"GIT_INDEX_FILE": f"{index}/index"}
            self._git("read-tree", base, extra=places)
            lines = "".join(f"{mode} {blob}\t{path}\0" for mode, blob, path in changes)
            self._git("update-index", "-z", "--index-info", extra=places, given=lines)
            return self._git("write-tree", extra=places)

    def _git(
        self,
        *words: str,
        extra: dict[str, str] | None = None,
        cwd: Path | None = None,
        given: str = "",
        strip: bool = True,
    ) -> str:
        quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.autocrlf=false"]
        command = ["git", "--git-dir", str(self._repository), *quiet, *words]
        done = subprocess.run(
            command, cwd=cwd, env=_environment(extra or {}), input=os.fsencode(given), capture_output=True, check=False
        )
        if done.returncode:
            raise ResearchError(f"git {words[0]} failed: {done.stderr.decode(errors='replace').strip()}")
        told = done.stdout.decode(errors="surrogateescape")  # names of files may be any bytes
        return told.strip() if strip else told


def _environment(extra: dict[str, str]) -> dict[str, str]:
    """Without the user's own settings of git, which could change what a commit holds."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**own, **AUTHOR, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **extra}


def _shown(text: str) -> str:
    """As text that can be written down, whatever bytes were in it."""
    return os.fsencode(text).decode(errors="replace")


def _among(path: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _may(change: Change, editable: list[str]) -> bool:
    """Symbolic links and repositories within are never taken: they would bring in what lies elsewhere."""
    return _among(change.path, editable) and change.mode in (*REGULAR, ABSENT)
