"""The `autoresearch` command. Thin: what it does lies in the other modules."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from autoresearch.errors import ResearchError

if TYPE_CHECKING:
    from autoresearch.store import Record

app = typer.Typer(
    name="autoresearch",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Where = Annotated[
    Path,
    typer.Argument(
        metavar="RESEARCH",
        help="A research folder, or an autoresearch-NAME.toml in it.",
        show_default=False,
    ),
]
RecordOption = Annotated[
    Path | None,
    typer.Option("--record", help="Where everything is kept; beside the toml unless given.", show_default=False),
]


@app.callback()
def autoresearch() -> None:
    """Parallel experiments on one server: settings or edits are proposed, run side by side, and kept only where a
    paired test says that they are better.

    A research folder holds program.md (what an attempt may do), autoresearch.toml (the command, its metric, the budget,
    and either options to search over with Optuna or a coding agent to run) and the target. Start with
    `autoresearch run RESEARCH`; stop it whenever you like, the same command goes on.
    """


@app.command()
def run(
    research: Where,
    record: RecordOption = None,
    attempts: Annotated[int | None, typer.Option(min=1, help="In place of budget.attempts.")] = None,
    at_once: Annotated[int | None, typer.Option(min=1, help="In place of budget.at_once.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="In place of budget.seconds, of one attempt.")] = None,
    confirm: Annotated[bool, typer.Option(help="Whether the winner is run again with fresh seeds.")] = True,
    like: Annotated[
        Path | None,
        typer.Option(help="A record whose attempts are run again, instead of new ones.", show_default=False),
    ] = None,
) -> None:
    """Try, compare, keep or drop, until the budget is used up; then confirm the winner on fresh seeds.

    Attempt 0 is the unchanged target. Killed or stopped, the same command goes on where it was: attempts that ended are
    not run again, and nothing is left running. More attempts are added to a record by a larger --attempts.
    """
    from autoresearch import config, starting, summary
    from autoresearch import report as reports
    from autoresearch.progress import Rows
    from autoresearch.store import Record

    place = config.Place.of(research)
    plan, kept = config.load(place), Record(record or place.record)
    wanted = {"attempts": attempts, "at_once": at_once, "seconds": seconds, "confirm_seeds": None if confirm else 0}
    given = {key: value for key, value in wanted.items() if value is not None}
    plan = plan.model_copy(update={"budget": plan.budget.model_copy(update=given)})
    console = Console()
    done = sum(attempt.state == "ended" for attempt in kept.attempts())
    with Rows(console, plan.budget.attempts + 1, done) as rows:
        other = Record(like) if like else None
        with starting.harness(plan, place.folder, kept, rows, other) as harness:
            try:
                asyncio.run(starting.carry_out(harness))
            except KeyboardInterrupt:
                print("stopped; the same command goes on from here", file=sys.stderr)
                raise typer.Exit(130) from None
    reports.write(plan, place.folder, kept)
    console.print(summary.table(plan, kept.attempts()))
    _tell(summary.lines(plan, kept) | {"report": str(kept.report)})


@app.command()
def status(research: Where, record: RecordOption = None) -> None:
    """Show how far it is: each attempt, whom it descends from, what became of it. May be asked while it runs."""
    from autoresearch import config, summary
    from autoresearch.store import Record

    place = config.Place.of(research)
    plan, kept = config.load(place), _existing(Record(record or place.record))
    Console().print(summary.table(plan, kept.attempts()))
    _tell(summary.lines(plan, kept))


@app.command()
def report(
    research: Where,
    record: RecordOption = None,
    out: Annotated[Path | None, typer.Option(help="RECORD/report.html unless given.", show_default=False)] = None,
) -> None:
    """Write one HTML page: the tree of attempts, their differences, curves and logs. It needs no network to show."""
    from autoresearch import config
    from autoresearch import report as reports
    from autoresearch.store import Record

    place = config.Place.of(research)
    plan, kept = config.load(place), _existing(Record(record or place.record))
    _tell({"report": str(reports.write(plan, place.folder, kept, out))})


def main() -> None:
    try:
        app()
    except ResearchError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def _existing(record: "Record") -> "Record":
    if not record.facts():
        raise ResearchError(f"{record.folder} holds no record yet: begin with `autoresearch run`")
    return record


def _tell(lines: dict[str, str]) -> None:
    for name, value in lines.items():
        print(f"{name}: {value}")
