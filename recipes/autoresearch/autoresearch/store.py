"""The record of a research: a folder with everything that is known of each attempt, complete at every moment.

    record/
      research.json            what was researched, and the commit of the unchanged target
      confirmation.json        the winner against the unchanged target, on fresh seeds
      attempts/0007/attempt.json, diff.patch, agent.log, seed-3.log, seed-3/…
      repository.git           each attempt's files as a commit; worktrees/ while it runs
      optuna.db                what Optuna has been told

Files are written beside their place and moved there, so whoever reads, or was killed while writing, has the old or the
new.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from autoresearch.errors import ResearchError
from autoresearch.verdicts import Comparison, Result

Options = dict[str, str | int | float | bool]


class Run(BaseModel):
    """One run of the command that came to its end."""

    model_config = ConfigDict(extra="forbid")

    seed: int
    metric: float
    problems: dict[str, float] | None = None
    curve: list[float] = []
    seconds: float

    def result(self) -> Result:
        return Result(self.seed, self.metric, self.problems)


class Attempt(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int  #: 0 is the unchanged target
    parent: int | None = None  #: whom it descends from, and is compared with
    options: Options = {}
    edits: list[str] = []  #: the files that it changed
    commit: str | None = None  #: its files; None until they are proposed
    state: Literal["begun", "proposed", "ended"] = "begun"
    outcome: Literal["kept", "dropped", "crashed", "refused"] | None = None
    reason: str = ""  #: for the outcome, in words
    runs: list[Run] = []
    comparison: Comparison | None = None  #: with its parent
    began: float  #: seconds since 1970
    ended: float | None = None

    def metric(self) -> float | None:
        """Its mean over seeds; None before it has all of them."""
        if not self.runs or self.state != "ended":
            return None
        return sum(run.metric for run in self.runs) / len(self.runs)

    def usable(self) -> bool:
        """Whether it ended with figures."""
        return self.state == "ended" and self.outcome not in ("crashed", "refused")


class Confirmation(BaseModel):
    model_config = ConfigDict(extra="forbid")

    winner: int
    runs: dict[int, list[Run]]  #: of the winner and of attempt 0, with fresh seeds
    comparison: Comparison | None = None  #: None until all runs are there


class Record:
    """Reads and writes the files. One harness at a time may write: `locked`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def repository(self) -> Path:
        return self.folder / "repository.git"

    @property
    def history(self) -> Path:
        return self.folder / "history.json"

    @property
    def database(self) -> Path:
        return self.folder / "optuna.db"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    def of(self, number: int) -> Path:
        """The folder of an attempt."""
        return self.folder / "attempts" / f"{number:04}"

    def worktree(self, number: int) -> Path:
        return self.folder / "worktrees" / f"{number:04}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises ResearchError where another harness works on this record."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResearchError(
                    f"another `autoresearch run` works on {self.folder}; wait for it, stop it, or give another --record"
                ) from None
            yield

    def attempts(self) -> list[Attempt]:
        files = sorted((self.folder / "attempts").glob("*/attempt.json"))
        return [Attempt.model_validate_json(file.read_text()) for file in files]

    def save(self, attempt: Attempt) -> None:
        write(self.of(attempt.number) / "attempt.json", attempt.model_dump(mode="json"))

    def confirmation(self) -> Confirmation | None:
        file = self.folder / "confirmation.json"
        return Confirmation.model_validate_json(file.read_text()) if file.exists() else None

    def save_confirmation(self, confirmation: Confirmation) -> None:
        write(self.folder / "confirmation.json", confirmation.model_dump(mode="json"))

    def facts(self) -> dict[str, Any]:
        """What was researched; nothing before the first start."""
        file = self.folder / "research.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def save_facts(self, facts: dict[str, Any]) -> None:
        write(self.folder / "research.json", facts)

    def diff(self, number: int) -> str:
        file = self.of(number) / "diff.patch"
        return file.read_text(errors="replace") if file.exists() else ""


def write(path: Path, value: Any) -> None:
    """The value as JSON, on the disk in whole or not at all."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
