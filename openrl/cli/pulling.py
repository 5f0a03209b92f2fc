"""`openrl models`: lists and pulls base models, with a progress bar."""

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from openrl.cli.text import columns
from openrl.domain.errors import BaseModelMissing
from openrl.models.catalogue import LISTED, Listed, folder_of, is_model
from openrl.models.fetch import Report
from openrl.models.pull import pull


def listed(home: Path) -> str:
    """All listed models and whether they are here; `home` is the data directory."""
    rows = [("name", "here", "download", "licence", "what it is")]
    for model in LISTED:
        here = "yes" if is_model(folder_of(model, home)) else "no"
        size = f"{model.download_mb} MB" if model.wheels else "none"
        rows.append((model.name, here, size, model.licence, model.about))
    return columns(rows)


def require_terms(model: Listed, accepted: bool) -> None:
    """Show the terms and have a person agree to them. Raises BaseModelMissing where nobody does."""
    if model.terms is None:
        return
    Console(stderr=True).print(model.terms, highlight=False)
    if accepted or (sys.stdin.isatty() and _yes("Do you agree? [y/N] ")):
        return
    raise BaseModelMissing(model.name, "its terms were not accepted; read them and pass --accept-terms")


def pull_with_bar(model: Listed, folder: Path) -> Path:
    """As `pull`, showing how far it is on standard error."""
    console = Console(file=sys.stderr)  # the stream of now: while converting, others write into the void
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        path = pull(model, folder, _reporter(progress, model.name))
    console.print(f"{model.name} is in {path}", soft_wrap=True, highlight=False)
    return path


def _reporter(progress: Progress, name: str) -> Report:
    task = progress.add_task(f"{name}: start", total=None)

    def report(step: str, done: float | None) -> None:
        total = None if done is None else 1.0
        progress.update(task, description=f"{name}: {step}", completed=done or 0.0, total=total)

    return report


def _yes(question: str) -> bool:
    return input(question).strip().lower() in ("y", "yes")
