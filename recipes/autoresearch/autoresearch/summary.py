"""A record in a table and in a few lines: what `status`, the end of `run` and the report say of it."""

from rich.markup import escape
from rich.table import Table

from autoresearch.config import Research
from autoresearch.harness import best_of
from autoresearch.progress import shown
from autoresearch.store import Attempt, Record

COLOURS = {"kept": "green", "dropped": "yellow", "crashed": "red", "refused": "red"}


def table(research: Research, attempts: list[Attempt]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("attempt", "from", "outcome", research.metric.name, "gain", "p", "seconds", "what"):
        table.add_column(heading, no_wrap=heading != "what")
    for attempt in attempts:
        outcome = attempt.outcome or attempt.state
        found = attempt.comparison
        why = attempt.reason if attempt.outcome in ("crashed", "refused") else shown(attempt)
        table.add_row(
            str(attempt.number),
            "" if attempt.parent is None else str(attempt.parent),
            f"[{COLOURS.get(outcome, 'cyan')}]{outcome}[/]",
            _figure(attempt.metric()),
            f"{found.gain:+.4g}" if found else "",
            f"{found.p:.3g}" if found else "",
            f"{sum(run.seconds for run in attempt.runs):.0f}",
            escape(why),
        )
    return table


def lines(research: Research, record: Record) -> dict[str, str]:
    """`name: value` lines: how it ended, or how far it is."""
    attempts = record.attempts()
    by_number = {attempt.number: attempt for attempt in attempts}
    tried = [attempt for attempt in attempts if attempt.number]
    told = {"attempts": str(sum(attempt.state == "ended" for attempt in tried))}
    told |= {name: str(sum(attempt.outcome == name for attempt in tried)) for name in COLOURS}
    if 0 in by_number:
        told["default"] = _figure(by_number[0].metric())
    best = best_of(by_number, research.metric.mode)
    if best is not None:
        told |= {"best": str(best.number), "best_metric": _figure(best.metric()), "best_is": shown(best)}
    told |= _confirmed(record)
    seconds = sum(start.get("searched", start["began"]) - start["began"] for start in record.facts().get("starts", []))
    return told | {"search_seconds": f"{seconds:.0f}"}


def _confirmed(record: Record) -> dict[str, str]:
    found = record.confirmation()
    if found is None or found.comparison is None:
        return {}
    means = {number: sum(run.metric for run in runs) / len(runs) for number, runs in found.runs.items() if runs}
    return {
        "confirmed": str(found.winner),
        "confirmed_default": _figure(means[0]),
        "confirmed_metric": _figure(means[found.winner]),
        "confirmed_gain": f"{found.comparison.gain:+.4g}",
        "confirmed_p": f"{found.comparison.p:.3g}",
        "confirmed_test": found.comparison.test,
    }


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
