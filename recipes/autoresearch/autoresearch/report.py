"""The record as one HTML page that needs nothing beside it. Diffs, logs and options are strangers' text: all are
escaped, and the page forbids itself to run or to fetch anything."""

import base64
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from autoresearch import charts, summary
from autoresearch.config import PROGRAM, Research
from autoresearch.progress import shown
from autoresearch.readings import tail
from autoresearch.store import Attempt, Record, write_text

_LOG_BYTES = 6_000
_DIFF_CHARACTERS = 100_000


def write(research: Research, folder: Path, record: Record, out: Path | None = None) -> Path:
    """Returns where the page lies."""
    path = out or record.report
    write_text(path, page(research, folder, record))
    return path


def page(research: Research, folder: Path, record: Record) -> str:
    attempts = record.attempts()
    found = record.confirmation()
    winner = found.winner if found else None
    metric = research.metric
    pictures = [
        ("Figures", charts.figures(attempts, metric.name, metric.mode)),
        ("Curves", charts.curves(attempts, winner, metric.curve_key)),
        ("Confirmation on fresh seeds", charts.confirmation(found, metric.name) if found else None),
    ]
    environment = Environment(loader=PackageLoader("autoresearch", "."), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    return environment.get_template("report.html.j2").render(
        name=folder.resolve().name,
        program=(folder / PROGRAM).read_text(errors="replace"),
        metric=metric,
        lines=summary.lines(research, record),
        pictures=[(name, _uri(svg)) for name, svg in pictures if svg],
        attempts=[_told(attempt, record) for attempt in attempts],
        children=_children(attempts),
        winner=winner,
    )


def _told(attempt: Attempt, record: Record) -> dict[str, object]:
    """What the page says of an attempt."""
    own = record.of(attempt.number)
    logs = [own / "agent.log", *sorted(own.glob("seed-*.log"))]
    return {
        "attempt": attempt,
        "metric": attempt.metric(),
        "what": shown(attempt),
        "diff": record.diff(attempt.number)[:_DIFF_CHARACTERS].splitlines(),
        "logs": [(log.name, tail(log, _LOG_BYTES)) for log in logs if log.exists()],
    }


def _children(attempts: list[Attempt]) -> dict[int, list[int]]:
    """Who descends from whom."""
    children: dict[int, list[int]] = {attempt.number: [] for attempt in attempts}
    for attempt in attempts:
        if attempt.parent is not None and attempt.parent in children:
            children[attempt.parent].append(attempt.number)
    return children


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
