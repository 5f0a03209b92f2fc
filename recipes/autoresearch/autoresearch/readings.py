"""What a run left behind, read with care: its metric, its problems' scores, its curve."""

import json
import math
import re
from pathlib import Path
from typing import Any

from autoresearch.config import Metric
from autoresearch.errors import Crashed
from autoresearch.store import Run

_TAIL_BYTES = 65_536


def run(seed: int, metric: Metric, log: Path, out: Path, seconds: float) -> Run:
    """Raises Crashed where the metric, or a file that was announced, is missing or no number."""
    return Run(
        seed=seed,
        metric=value(metric.name, tail(log)),
        problems=problems(out / metric.problems, metric.problems_at, metric.problem_score) if metric.problems else None,
        curve=curve(out / metric.curve, metric.curve_key) if metric.curve else [],
        seconds=round(seconds, 3),
    )


def tail(log: Path, limit: int = _TAIL_BYTES) -> str:
    """The end of a log."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit))
        return file.read().decode(errors="replace")


def last_line(log: Path) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in tail(log).splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it printed nothing"


def value(name: str, said: str) -> float:
    """The number of the last line `NAME: value`."""
    found = re.findall(rf"^{re.escape(name)}: *(\S+)\s*$", said, re.MULTILINE)
    if not found:
        raise Crashed(f"it printed no line `{name}: value`")
    return _number(found[-1], f"the line `{name}: {found[-1]}`")


def problems(path: Path, at: str | None = None, score: str | None = None) -> dict[str, float]:
    """Scores by the problem's name, or by its place where the file holds a list. `at` is the key they lie under, and
    `score` that of a problem's number, if any."""
    told = _json(path)
    if at is not None:
        told = _under(told, at, path.name)
    if isinstance(told, list):
        told = dict(enumerate(told))
    if not isinstance(told, dict) or not told:
        raise Crashed(f"{path.name} holds neither a list nor an object of scores")
    where = f"of {path.name}"
    return {
        str(name): _number(
            one if score is None else _under(one, score, f"problem {name} {where}"), f"problem {name} {where}"
        )
        for name, one in told.items()
    }


def curve(path: Path, key: str) -> list[float]:
    """The numbers under `key`, of the lines that have it. For the report only, so a missing file is an empty curve."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return []
    found = [line[key] for line in lines if isinstance(line, dict) and isinstance(line.get(key), int | float)]
    return [float(number) for number in found if math.isfinite(number)]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError:
        raise Crashed(f"it wrote no {path.name}") from None
    except ValueError as error:
        raise Crashed(f"{path.name} is no JSON: {error}") from None


def _under(told: Any, key: str, where: str) -> Any:
    if not isinstance(told, dict) or key not in told:
        raise Crashed(f"{where} has no {key!r}")
    return told[key]


def _number(told: object, where: str) -> float:
    try:
        number = float(told)  # type: ignore[arg-type]  # whatever it is, or a TypeError
    except (TypeError, ValueError):
        raise Crashed(f"{where} is no number") from None
    if not math.isfinite(number):
        raise Crashed(f"{where} is no finite number")
    return number
