"""What a person sees while attempts run: a bar for all, a row for each at work; lines where there is no terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from autoresearch.store import Attempt

OVER = ("ended", "confirmed")


class Rows:
    """Is told by the harness what each attempt does."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[doing]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console)
        self._all = self._progress.add_task("attempts", total=total, completed=done, doing="")
        self._rows: dict[int, TaskID] = {}
        self._counts = {"kept": 0, "dropped": 0, "crashed": 0, "refused": 0}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, attempt: Attempt, doing: str) -> None:
        if doing == "ended":
            self._progress.update(self._all, advance=1)
        if doing in OVER:
            self._drop(attempt)
        elif doing.startswith(("proposing", "seed", "confirming")):
            self._row(attempt, doing)
        if attempt.number and (doing == "judged" or (doing == "ended" and attempt.outcome)):
            self._tell(attempt)

    def _row(self, attempt: Attempt, doing: str) -> None:
        what = shown(attempt)
        if attempt.number not in self._rows:
            self._rows[attempt.number] = self._progress.add_task(f"  attempt {attempt.number}", total=None, doing="")
        self._progress.update(self._rows[attempt.number], doing=escape(f"{doing}  {what}"))

    def _drop(self, attempt: Attempt) -> None:
        row = self._rows.pop(attempt.number, None)
        if row is not None:
            self._progress.remove_task(row)

    def _tell(self, attempt: Attempt) -> None:
        assert attempt.outcome is not None
        self._counts[attempt.outcome] += 1
        counts = "  ".join(f"{name} {count}" for name, count in self._counts.items() if count)
        self._progress.update(self._all, doing=counts)
        self._progress.console.print(
            escape(f"attempt {attempt.number}  {attempt.outcome}: {attempt.reason}  {shown(attempt)}"), soft_wrap=True
        )


def shown(attempt: Attempt) -> str:
    """What it tries, in a few words."""
    if attempt.options:
        return " ".join(f"{name}={_short(value)}" for name, value in attempt.options.items())
    return "unchanged" if attempt.number == 0 else " ".join(attempt.edits)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
