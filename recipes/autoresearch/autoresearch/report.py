"""The record as one HTML page that needs nothing beside it. Diffs, logs and options are strangers' text: all are
escaped, and the page forbids itself to run or to fetch anything."""

import base64
import re
from functools import partial
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from autoresearch import charts, summary
from autoresearch.config import PROGRAM, Research
from autoresearch.progress import shown
from autoresearch.readings import tail
from autoresearch.store import Attempt, Record, write_text

_LOG_BYTES = 6_000
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_DIFF_CHARACTERS = 100_000


def write(research: Research, folder: Path, record: Record, out: Path | None = None) -> Path:
    """Returns where the page lies; the record gets its first pictures as a PNG too."""
    path = out or record.report
    write_text(path, page(research, folder, record))
    wanted = ("Attempts", "Confirmation")
    draws = [draw for heading, draw in _pictures(research, record) if heading in wanted]
    (record.folder / "picture.png").write_bytes(charts.png(*draws))
    return path


def page(research: Research, folder: Path, record: Record) -> str:
    attempts = record.attempts()
    found = record.confirmation()
    environment = Environment(loader=PackageLoader("autoresearch", "."), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    return environment.get_template("report.html.j2").render(
        name=folder.resolve().name,
        program=(folder / PROGRAM).read_text(errors="replace"),
        metric=research.metric,
        lines=summary.lines(research, record),
        pictures=[(heading, _uri(charts.svg(draw))) for heading, draw in _pictures(research, record)],
        attempts=[_told(attempt, record) for attempt in attempts],
        children=_children(attempts),
        winner=found.winner if found else None,
    )


def _pictures(research: Research, record: Record) -> list[tuple[str, charts.Draw]]:
    """Under their headings."""
    tried, found, metric = record.attempts(), record.confirmation(), research.metric
    pictures: list[tuple[str, charts.Draw]] = [
        ("Attempts", partial(charts.attempts, tried=tried, metric=metric.name, mode=metric.mode))
    ]
    if found is not None:
        pictures.append(("Confirmation", partial(charts.confirmation, found=found, metric=metric.name)))
    if charts.has_curves(tried):
        winner = found.winner if found else None
        pictures.append(("Curves", partial(charts.curves, tried=tried, winner=winner, what=metric.curve_key)))
    return pictures


def _told(attempt: Attempt, record: Record) -> dict[str, object]:
    """What the page says of an attempt."""
    own = record.of(attempt.number)
    logs = [own / "agent.log", *sorted(own.glob("seed-*.log"))]
    return {
        "attempt": attempt,
        "metric": attempt.metric(),
        "what": shown(attempt),
        "diff": record.diff(attempt.number)[:_DIFF_CHARACTERS].splitlines(),
        "logs": [(log.name, _plain(tail(log, _LOG_BYTES))) for log in logs if log.exists()],
    }


def _plain(text: str) -> str:
    """Without what only a terminal understands."""
    return "".join(sign for sign in _COLOUR.sub("", text) if sign.isprintable() or sign in "\n\t")


def _children(attempts: list[Attempt]) -> dict[int, list[int]]:
    """Who descends from whom."""
    children: dict[int, list[int]] = {attempt.number: [] for attempt in attempts}
    for attempt in attempts:
        if attempt.parent is not None and attempt.parent in children:
            children[attempt.parent].append(attempt.number)
    return children


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
